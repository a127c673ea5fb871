"""What pip calls (PEP 517): makes a wheel of the package and the client's library.

The library is built with cargo from the source tree that this folder is in. NETCHAIN_LIBRARY names
one that is there already. Nothing else is needed: no setuptools, no maturin, no network but what
cargo needs for crates that it does not have.
"""

import base64
import hashlib
import os
import pathlib
import platform
import subprocess
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
NAME, VERSION = "netchain", "0.1.0"
TAG = "py3-none-linux_" + platform.machine()
METADATA = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\nRequires-Python: >=3.9\n"
WHEEL = f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: false\nTag: {TAG}\n"


def library():
    """The path of libnetchain.so."""
    named = os.environ.get("NETCHAIN_LIBRARY")
    if named:
        return pathlib.Path(named)
    if not (ROOT / "Cargo.toml").exists():
        raise RuntimeError(f"{ROOT} is no source tree; NETCHAIN_LIBRARY=PATH names libnetchain.so")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    command = ["cargo", "build", "--release", "--locked", "-p", "netchain-client-c"]
    try:
        subprocess.run([*command, "--target-dir", str(target)], cwd=ROOT, check=True)
    except FileNotFoundError:
        raise RuntimeError("cargo is not there: install Rust (https://rustup.rs)") from None
    return target / "release" / "libnetchain.so"


def write_wheel(directory, files):
    """Writes a wheel of files, by their names in it."""
    name = f"{NAME}-{VERSION}-{TAG}.whl"
    info = f"{NAME}-{VERSION}.dist-info"
    files = {**files, f"{info}/METADATA": METADATA.encode(), f"{info}/WHEEL": WHEEL.encode()}
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    record += f"{info}/RECORD,,\n"
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in {**files, f"{info}/RECORD": record.encode()}.items():
            wheel.writestr(path, content)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel with everything in it."""
    files = {f"{NAME}/{path.name}": path.read_bytes() for path in (HERE / NAME).glob("*.py")}
    files[f"{NAME}/libnetchain.so"] = library().read_bytes()
    return write_wheel(wheel_directory, files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel that points to this folder; the library is copied into the package."""
    (HERE / NAME / "libnetchain.so").write_bytes(library().read_bytes())
    return write_wheel(wheel_directory, {f"{NAME}.pth": f"{HERE}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    """There is none: the library is built from the whole source tree."""
    raise RuntimeError("no source distribution: install from the source tree")
