package testhost

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// A model is what safetensors says it is: every shard as long as its header
// wants, every tensor of the index in the shard it names.
func TestWriteModel(t *testing.T) {
	for _, shards := range []int{1, 3} {
		dir := t.TempDir()
		if err := WriteModel(dir, shards, 1<<20); err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
		if err != nil || len(found) != shards {
			t.Fatalf("%d shards: found %q, %v", shards, found, err)
		}
		tensors := map[string]string{}
		var total int64
		for _, path := range found {
			name, size := readSafetensors(t, path)
			tensors[name] = filepath.Base(path)
			total += size
		}
		if want := int64(1<<20) / int64(shards) / 2 * 2 * int64(shards); total != want {
			t.Errorf("%d shards: %d bytes of tensors, want %d", shards, total, want)
		}
		if shards > 1 {
			checkIndex(t, dir, tensors, total)
		}
	}
}

// readSafetensors returns the one tensor of a file and its size.
func readSafetensors(t *testing.T, path string) (name string, size int64) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	length := binary.LittleEndian.Uint64(text)
	header := map[string]struct {
		DataOffsets []int64 `json:"data_offsets"`
	}{}
	if err := json.Unmarshal(text[8:8+length], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	for name, tensor := range header {
		if want := 8 + int64(length) + tensor.DataOffsets[1]; int64(len(text)) != want {
			t.Errorf("%s has %d bytes, its header wants %d", path, len(text), want)
		}
		return name, tensor.DataOffsets[1]
	}
	t.Fatalf("%s has no tensor", path)
	return "", 0
}

func checkIndex(t *testing.T, dir string, tensors map[string]string, total int64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "model.safetensors.index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Metadata  struct{ TotalSize int64 } `json:"metadata"`
		WeightMap map[string]string         `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	if len(index.WeightMap) != len(tensors) {
		t.Errorf("the index has %d tensors, want %d", len(index.WeightMap), len(tensors))
	}
	for tensor, file := range tensors {
		if index.WeightMap[tensor] != file {
			t.Errorf("the index has %s in %q, want %q", tensor, index.WeightMap[tensor], file)
		}
	}
}

func TestLookUpUser(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	passwd := "root:x:0:0:root:/root:/bin/bash\nvllm:x:997:996:vLLM models:/var/lib/vllm:/usr/sbin/nologin\n"
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]int{"vllm": {997, 996}, "vll": {0, 0}} {
		uid, gid, err := lookUpUser(root, name)
		if err != nil || uid != want[0] || gid != want[1] {
			t.Errorf("%s: %d %d, %v; want %d", name, uid, gid, err, want)
		}
	}
}
