// Package fakegpu is an NVIDIA driver made of files, for a disposable host: it
// puts into the root of the host what programs look at to find GPUs, and
// answers as nvidia-smi does. It owns the inventory, the files below
// /proc/driver/nvidia, the device nodes and the CSV; it does not compute, and
// knows nothing of vLLM but its command line's --gpu-memory-utilization.
//
// Texts are those of a host with driver 580.159.04 and H200s.
//
// # Memory
//
// A process holds memory on a GPU when it has the GPU's node open, as long as
// it does: its share is that of --gpu-memory-utilization on its own command
// line or a parent's, 0.92 without. With exactly three descriptors of a node
// it holds none: so many has vLLM's API server, which only looks.
//
// # Switches
//
// Files in /etc/fakegpu of the host change what nvidia-smi says from its next
// call on:
//
//	hang          it never answers, and ignores SIGTERM, as with a stuck driver
//	fail          it exits 9 with the text of the file on its output
//	mismatch      the driver's library is of another version than the module: exit 18
//	slow-release  seconds that memory stays used after its holder is gone,
//	              counted from the first call that finds it gone
//	foreign       lines "INDEX MIB": memory used by nobody who can be seen
//	gone          lines "INDEX": GPUs that have fallen off the bus
//
// `nvidia-smi --testhost-hold INDEX MIB` is a process that holds memory until
// it is killed: a foreign holder with a pid.
package fakegpu
