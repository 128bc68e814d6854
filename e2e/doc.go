//go:build e2e

// Package e2e tells stories of an administrator on disposable Debian hosts
// with a real systemd, the package installed and a simulated vLLM as engine.
// README.md describes the language of the stories in testdata.
//
// It owns what a user sees of the whole: what is inside a package is tested
// there. It needs root, and runs with:
//
//	go test -tags e2e ./e2e
package e2e
