// Package conf reads the host profile: what the administrator wants.
//
// It owns the profile's keys, their defaults, units and rules, and the diagnostics that point into the files. It does
// not know units, systemd or the running host.
package conf
