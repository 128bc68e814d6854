// Package probe asks a running engine whether it serves: alive, under the expected name, and able to produce a token.
//
// It owns the HTTP side of that proof. Whose process answers is not its business: that the listening socket belongs to the
// right unit is proven by the socket's owner, and only both together are identity. Everything a server sends is taken for
// hostile: answers are bounded, redirects are not followed, compression is not accepted, and what ends up in an error is
// cut and escaped. One connection is open at a time, because health checks that pile up are a load of their own.
package probe
