// Package ports tells who holds a TCP port or the path of a unix socket.
//
// It asks the kernel's socket diagnostics (sock_diag(7)), which also report what no other view does: a socket that is
// bound and does not listen yet, which is what a loading vLLM has for minutes. Such a port refuses connections and is absent
// from /proc/net/tcp; a trial bind often succeeds on it, and would itself be in the way of the engine while it lasts. This
// package never binds the port it is asked about. It sees the network namespace it runs in, and frees nothing.
package ports
