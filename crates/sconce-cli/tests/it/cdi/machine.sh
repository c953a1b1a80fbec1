# A machine with two cards, played in the mount namespace of this shell alone: the driver's files, its
# nodes (which are those of /dev/null and the like) and its libraries. The rest of the machine is the
# real one. To be sourced in `unshare --mount --propagation private`, with $work a folder of its own and
# $libraries one that holds libcuda.so.1.
driver=580.65.06

mount -t tmpfs none /proc/driver
mkdir -p /proc/driver/nvidia
printf 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Sat Aug 19 01:15:15 UTC 2023\n' $driver \
  >/proc/driver/nvidia/version
card() { # card BUS MINOR UUID
  mkdir -p "/proc/driver/nvidia/gpus/0000:$1:00.0"
  printf 'Model: \t\t NVIDIA L4\nGPU UUID: \t %s\nBus Location: \t 0000:%s:00.0\nDevice Minor: \t %s\n' \
    "$3" "$1" "$2" >"/proc/driver/nvidia/gpus/0000:$1:00.0/information"
}
card 17 1 GPU-aaaaaaaa-0000-0000-0000-000000000000
card 65 0 GPU-bbbbbbbb-0000-0000-0000-000000000000

# A /dev of its own with what engines need.
mkdir "$work/dev"
mount -t tmpfs -o mode=755 none "$work/dev"
node() { mknod -m 666 "$work/dev/$1" c 1 "$2"; }
node null 3; node zero 5; node full 7; node random 8; node urandom 9
mknod -m 666 "$work/dev/tty" c 5 0
mkdir "$work/dev/pts" "$work/dev/shm" "$work/dev/char"
mount --bind /dev/pts "$work/dev/pts"
ln -s pts/ptmx "$work/dev/ptmx"
ln -s /proc/self/fd "$work/dev/fd"
mount -t tmpfs none "$work/dev/shm"
[ ! -e /dev/fuse ] || mknod -m 666 "$work/dev/fuse" c 10 229
node nvidia0 3; node nvidia1 5; node nvidiactl 7; node nvidia-uvm 9
mount --rbind "$work/dev" /dev

# One of the folders in which the driver's libraries are looked for.
mount -t tmpfs none /usr/local
mkdir -p /usr/local/nvidia/lib64
cp "$libraries/libcuda.so.1" /usr/local/nvidia/lib64/libcuda.so.$driver

# No CDI file but those that are written here.
mkdir -p "$work/etc-cdi" /etc/cdi
mount --bind "$work/etc-cdi" /etc/cdi
