#!/bin/sh
# keepalived runs this when a machine becomes master or backup: the steps of conntrack-tools' own
# doc/sync/primary-backup.sh.
# Without a configuration of conntrackd (mode "alone") there is nothing to do.
config=$2
[ -e "$config" ] || exit 0
case "$1" in
  primary)
    conntrackd -C "$config" -c # what the other told us becomes the kernel's
    conntrackd -C "$config" -f
    conntrackd -C "$config" -R
    conntrackd -C "$config" -B
    ;;
  backup)
    conntrackd -C "$config" -t
    conntrackd -C "$config" -n
    ;;
  fault) conntrackd -C "$config" -t ;;
esac
