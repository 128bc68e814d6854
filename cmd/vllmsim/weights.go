package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// weights looks at the files that the load is going to read, and returns what the real one dies of if one of them is
// wrong. It reads headers, as the real one does before it maps the rest.
func (m modelDir) weights(rel release) (fatal, bool) {
	if !m.local {
		return fatal{}, false
	}
	if len(m.missing) > 0 {
		return m.missingShards(rel), true
	}
	files := m.files
	if len(files) == 0 {
		files, _ = filepath.Glob(filepath.Join(m.path, "*.safetensors"))
	}
	if len(files) == 0 {
		return fatal{from: fromWorker, text: "RuntimeError: Cannot find any model weights with `{model}`"}, true
	}
	slices.Sort(files)
	for _, file := range files {
		if why := wrongHeader(file); why != "" {
			return fatal{from: fromWorker, text: why}, true
		}
	}
	return fatal{}, false
}

// missingShards is what vLLM says of files that only the index knows: since 0.26 at once, before that when it has loaded
// the others.
func (m modelDir) missingShards(rel release) fatal {
	if rel.loadsPartly {
		return fatal{from: fromWorker, text: "ValueError: Following weights were not initialized from checkpoint: {'model.layers.0.input_layernorm.weight'}"}
	}
	return fatal{from: fromWorker, text: "FileNotFoundError: Weight files referenced in index but missing: {'" + strings.Join(m.missing, "', '") + "'}"}
}

// wrongHeader says what safetensors finds wrong with a file, in its own words.
func wrongHeader(path string) string {
	const raised = "safetensors_rust.SafetensorError: Error while deserializing header: "
	f, err := os.Open(path)
	if err != nil {
		return "PermissionError: [Errno 13] Permission denied: '" + path + "'"
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		return "OSError: No such device (os error 19)"
	}
	var length [8]byte
	if _, err := io.ReadFull(f, length[:]); err != nil {
		return raised + "header too small"
	}
	n := binary.LittleEndian.Uint64(length[:])
	const largest = 100_000_000 // as in the library
	if n > largest {
		return raised + "header too large"
	}
	header := make([]byte, n)
	if _, err := io.ReadFull(f, header); errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return raised + "invalid header length"
	}
	var tensors map[string]struct {
		Offsets [2]int64 `json:"data_offsets"`
	}
	if json.Unmarshal(header, &tensors) != nil {
		return raised + "invalid JSON in header"
	}
	end := int64(len(length)) + int64(n)
	var data int64
	for _, t := range tensors {
		data = max(data, t.Offsets[1])
	}
	if info.Size() != end+data {
		return raised + "incomplete metadata, file not fully covered"
	}
	return ""
}
