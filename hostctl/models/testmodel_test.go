package models_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A model is a directory in the making: file name to content.
type model map[string][]byte

// sharded is a model of n shards with two tensors each, as vLLM wants it.
func sharded(n int) model {
	m := model{"config.json": []byte(`{"architectures": ["LlamaForCausalLM"]}`)}
	weightMap := make(map[string]string)
	for i := 1; i <= n; i++ {
		file := shardFile(i, n)
		names := []string{fmt.Sprintf("model.layers.%d.weight", i), fmt.Sprintf("model.layers.%d.bias", i)}
		m[file] = tensorFile(tensor{names[0], 0, 100}, tensor{names[1], 100, 110})
		for _, name := range names {
			weightMap[name] = file
		}
	}
	m["model.safetensors.index.json"] = index(weightMap)
	return m
}

// shardFile is the i-th of n names, from 1.
func shardFile(i, n int) string { return fmt.Sprintf("model-%05d-of-%05d.safetensors", i, n) }

func index(weightMap map[string]string) []byte {
	text, err := json.MarshalIndent(map[string]any{"metadata": map[string]any{"total_size": 1}, "weight_map": weightMap}, "", "  ")
	if err != nil {
		panic(err)
	}
	return text
}

type tensor struct {
	name       string
	begin, end int
}

// tensorFile is a safetensors file with the given tensors and as much data as they need.
func tensorFile(tensors ...tensor) []byte {
	data := 0
	for _, t := range tensors {
		data = max(data, t.end)
	}
	return append(tensorHeader(tensors...), make([]byte, data)...)
}

// tensorHeader is the begin of a safetensors file with the given tensors.
func tensorHeader(tensors ...tensor) []byte {
	var members []string
	for _, t := range tensors {
		members = append(members, fmt.Sprintf(`%q:{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}`, t.name, t.end-t.begin, t.begin, t.end))
	}
	header := "{" + strings.Join(members, ",") + "}"
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
}

// write makes the directory and returns its path.
func (m model) write(t testing.TB, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, m[name], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
