// Package testhost boots disposable Debian hosts with a real systemd.
package testhost
