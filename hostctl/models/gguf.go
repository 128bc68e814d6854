package models

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
)

// ggufSplit is how the parts of a split GGUF file are named; loaders find the parts by it (llama.cpp, llama_split_path).
var ggufSplit = regexp.MustCompile(`^(.+)-(\d{5})-of-(\d{5})\.gguf$`)

// expectGGUF returns the files that the given GGUF files call for: themselves, and all parts of those that are parts.
func expectGGUF(present []string) []string {
	wanted := slices.Clone(present)
	seen := make(map[string]bool)
	for _, name := range present {
		part := ggufSplit.FindStringSubmatch(name)
		if part == nil || seen[part[1]+part[3]] {
			continue
		}
		seen[part[1]+part[3]] = true
		total, _ := strconv.Atoi(part[3])
		for i := 1; i <= min(total, maxWeightFiles); i++ {
			wanted = append(wanted, fmt.Sprintf("%s-%05d-of-%s.gguf", part[1], i, part[3]))
		}
	}
	slices.Sort(wanted)
	return slices.Compact(wanted)
}

// checkGGUF looks at the first 24 bytes of a GGUF file: magic, version, number of tensors and of keys
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Its length is not checked.
func checkGGUF(file *os.File) error {
	var begin [512]byte
	n, err := file.ReadAt(begin[:], 0)
	if err != nil && err != io.EOF {
		return fmt.Errorf("cannot be read: %v", cause(err))
	}
	if string(begin[:4]) != "GGUF" {
		if err := checkStandIn(begin[:n]); err != nil {
			return err
		}
		return errors.New(`does not begin with "GGUF"`)
	}
	if n < 24 {
		return errors.New("ends within its header")
	}
	if version := binary.LittleEndian.Uint32(begin[4:]); version != 2 && version != 3 {
		return fmt.Errorf("is GGUF of the unknown version %d", version)
	}
	return nil
}
