// Package testhost boots disposable Debian hosts with a real systemd as PID 1,
// for tests that look at the whole from outside, and for the demo. A host is up
// in less than a second, has the package installed as a user would, and leaves
// nothing behind.
//
//	lab, err := testhost.Open(os.Stderr)   // needs root; the error says what to type
//	lab.CloseOnSignal()
//	defer lab.Close()
//	h, err := lab.Boot(ctx, testhost.Options{Release: testhost.Bookworm, Payload: payload, GPUs: 2})
//	out, err := h.Check(ctx, "systemctl", "is-system-running", "--wait")
//	err = h.Reboot(ctx)                    // or h.PowerCut(ctx); the disk survives both
//	err = h.Close()
//
// It owns images, disks, boots and what runs inside. It does not own stories
// (package e2e), what a faked GPU says (package fakegpu), nor the building of
// what is installed (make payload), and it knows nothing of vllmhost.
//
// # How
//
// An image is made once by mmdebstrap and cached under the hash of its recipe;
// installing a package on it is cached likewise, as a layer. A host's disk is
// an overlay of these with a folder of its own on top (disk.go). systemd-nspawn
// boots it with a network of its own, in cgroups of its own (cgroup.go), and a
// unit in the image says on a socket when multi-user.target is reached.
//
// All mounts live in the mount namespace of one thread (thread.go), and all
// processes in a process namespace whose PID 1 dies with that thread. So a
// kill -9 of the test leaves neither, only folders and empty cgroups; these
// belong to whoever holds a flock, and the next Open removes those that nobody
// holds (lab.go). Deleting stops at every mount point (remove.go).
//
// Commands enter with nsenter. That they run in the host and not on this
// machine is not taken for granted: every boot proves it before the first one
// (run.go).
//
// # Where it works
//
// As root on a Debian with systemd or without, in a chroot with /proc, /sys and
// /dev, in a container with CAP_SYS_ADMIN and CAP_MKNOD, in another host
// started by systemd-nspawn. [CacheEnv] and [MirrorEnv] are all there is to
// set.
package testhost
