package models_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vllmhost/hostctl/models"
)

// The test binary is its own helper: with this variable set it checks that directory and prints what it found.
const checkDir = "MODELS_TEST_CHECK"

func TestMain(m *testing.M) {
	dir, ok := os.LookupEnv(checkDir)
	if !ok {
		os.Exit(m.Run())
	}
	report, err := models.Check(context.Background(), dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report)
}

// An engine's user reads what it may and is told what it may not.
func TestAsAnotherUser(t *testing.T) {
	const nobody = 65534
	dir := sharded(3).write(t, t.TempDir())
	program := filepath.Join(t.TempDir(), "models.test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Dir(dir), dir, filepath.Dir(program)} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	checkAs := func() string {
		t.Helper()
		cmd := exec.Command(program)
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), checkDir+"="+dir)
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		output, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return strings.TrimSpace(string(output))
	}
	uid := os.Getuid()
	if uid == 0 {
		uid = nobody
	}

	if got, want := checkAs(), "complete: 3 of 3 shards, 810 B"; got != want {
		t.Errorf("readable: got %s, want %s", got, want)
	}
	if err := os.Chmod(filepath.Join(dir, second), 0); err != nil {
		t.Fatal(err)
	}
	if got, want := checkAs(), fmt.Sprintf("incomplete: 2 of 3 shards, 540 B; %s cannot be read by uid %d: permission denied", second, uid); got != want {
		t.Errorf("a file:\ngot  %s\nwant %s", got, want)
	}
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o755) // for the clean-up
	if got, want := checkAs(), fmt.Sprintf("cannot check the model %q: permission denied", dir); got != want {
		t.Errorf("the directory:\ngot  %s\nwant %s", got, want)
	}
}
