package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// dumped is what VLLMSIM_DUMP writes: exactly what the kernel gave this process, read back from /proc because the Go
// runtime drops environment entries it finds odd (twice the same name).
type dumped struct {
	Argv    []string `json:"argv"`
	Environ []string `json:"environ"`
	Dir     string   `json:"dir"`
	UID     int      `json:"uid"`
	GID     int      `json:"gid"`
	Groups  []int    `json:"groups"`
	PID     int      `json:"pid"`
}

// dump writes argv and environ to path, whole or not at all. Strings must be valid UTF-8 to survive JSON.
func dump(path string) error {
	d := dumped{UID: os.Getuid(), GID: os.Getgid(), PID: os.Getpid()}
	d.Dir, _ = os.Getwd()
	d.Groups, _ = os.Getgroups()
	var err error
	if d.Argv, err = zeroTerminated("/proc/self/cmdline"); err != nil {
		return err
	}
	if d.Environ, err = zeroTerminated("/proc/self/environ"); err != nil {
		return err
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(d); err != nil {
		return fmt.Errorf("cannot encode the dump: %v", err)
	}
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(tmp, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("cannot write the dump: %v", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("cannot write the dump: %v", err)
	}
	return nil
}

func zeroTerminated(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot dump: %v", err)
	}
	if len(text) == 0 {
		return []string{}, nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), nil
}
