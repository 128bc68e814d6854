//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"vllmhost/testhost"
)

// The lab and what is installed on its hosts, set once by TestMain.
var (
	lab     *testhost.Lab
	payload testhost.Payload
)

// builtVariable says that make has just built the payload.
const builtVariable = "TESTHOST_BUILT"

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if os.Getenv(builtVariable) == "" {
		// So that `go test` alone never tests yesterday's package.
		if out, err := exec.Command("make", "--no-print-directory", "-C", "..", "payload").CombinedOutput(); err != nil {
			return 0, fmt.Errorf("make payload: %v\n%s", err, out)
		}
	}
	if payload, err = testhost.FindPayload(".."); err != nil {
		return 0, err
	}
	if lab, err = testhost.Open(os.Stderr); err != nil {
		return 0, err
	}
	lab.CloseOnSignal()
	code = m.Run()
	return code, lab.Close()
}

// boot gives a test a host. A failed test shows the end of the host's journal.
func boot(t testing.TB, opts testhost.Options) *testhost.Host {
	t.Helper()
	// The first boot may have to make the image.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	h, err := lab.Boot(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { retire(h, t.Failed(), func(text string) { t.Log(text) }) })
	return h
}

// retire closes a host, after its journal is shown if something failed.
func retire(h *testhost.Host, failed bool, log func(string)) {
	if failed {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		log(fmt.Sprintf("the journal of %v:\n%s", h, h.Journal(ctx, 150)))
	}
	if err := h.Close(); err != nil {
		log(err.Error())
	}
}
