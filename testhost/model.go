package testhost

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Model is a folder of weights to make below /srv/models.
type Model struct {
	Name   string
	Shards int    // safetensors files; 1 makes a single model.safetensors
	Bytes  int64  // of tensor data, over all shards; sparse on disk
	Sim    string // lines NAME=value: how the simulated engine serves it (cmd/vllmsim)
}

// ModelDir is where a host's models are.
const ModelDir = "/srv/models"

// install makes the model in a host's root, owned by the user vllm where the
// package has made one.
func (m Model) install(root string) error {
	dir := filepath.Join(root, ModelDir, m.Name)
	if err := WriteModel(dir, m.Shards, m.Bytes); err != nil {
		return err
	}
	if m.Sim != "" {
		if err := os.WriteFile(filepath.Join(dir, "sim.env"), []byte(m.Sim), 0o644); err != nil {
			return err
		}
	}
	uid, gid, err := lookUpUser(root, "vllm")
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}

// lookUpUser reads a root's /etc/passwd; a user it does not know is root.
func lookUpUser(root, name string) (uid, gid int, err error) {
	text, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(line, ":")
		if len(fields) < 4 || fields[0] != name {
			continue
		}
		if uid, err = strconv.Atoi(fields[2]); err != nil {
			return 0, 0, err
		}
		gid, err = strconv.Atoi(fields[3])
		return uid, gid, err
	}
	return 0, 0, nil
}

// WriteModel makes a complete little model: safetensors files with true
// headers, the index that names them (with more than one shard), a config and
// a tokenizer. bytes is the size of all tensors together; they are holes, so a
// model of hundreds of gigabytes costs a few blocks.
//
// Format: https://github.com/huggingface/safetensors, "Format"; index and
// file names as transformers' save_pretrained writes them.
func WriteModel(dir string, shards int, bytes int64) error {
	if shards < 1 || bytes < int64(shards)*2 {
		return fmt.Errorf("cannot make a model of %d bytes in %d files", bytes, shards)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	weights := map[string]string{}
	var total int64
	for i := range shards {
		name := "model.safetensors"
		if shards > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		}
		size := bytes / int64(shards) / 2 * 2 // BF16: two bytes an element
		tensor := fmt.Sprintf("model.layers.%d.mlp.down_proj.weight", i)
		if err := writeSafetensors(filepath.Join(dir, name), tensor, size); err != nil {
			return err
		}
		weights[tensor] = name
		total += size
	}
	files := map[string]any{
		"config.json": map[string]any{
			"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "torch_dtype": "bfloat16",
			"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": shards, "num_attention_heads": 4,
			"num_key_value_heads": 4, "vocab_size": 256, "max_position_embeddings": 131072,
		},
		"generation_config.json": map[string]any{"bos_token_id": 1, "eos_token_id": 2},
		"tokenizer_config.json":  map[string]any{"tokenizer_class": "PreTrainedTokenizerFast"},
		"tokenizer.json":         map[string]any{"version": "1.0", "model": map[string]any{"type": "BPE", "vocab": map[string]int{}, "merges": []string{}}},
	}
	if shards > 1 {
		files["model.safetensors.index.json"] = map[string]any{
			"metadata": map[string]int64{"total_size": total}, "weight_map": weights,
		}
	}
	for name, value := range files {
		text, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeSafetensors writes one tensor of size bytes, as a hole.
func writeSafetensors(path, tensor string, size int64) error {
	header, err := json.Marshal(map[string]any{
		"__metadata__": map[string]string{"format": "pt"},
		tensor: map[string]any{
			"dtype": "BF16", "shape": []int64{size / 2}, "data_offsets": []int64{0, size},
		},
	})
	if err != nil {
		return err
	}
	for len(header)%8 != 0 { // as the reference implementation aligns it
		header = append(header, ' ')
	}
	text := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return err
	}
	return os.Truncate(path, int64(len(text))+size)
}
