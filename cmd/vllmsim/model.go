package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sort"
)

// modelDir is what the simulation wants to know of the weights.
type modelDir struct {
	path         string
	shards       int      // as the index counts them, else 4
	files        []string // named by the index
	missing      []string // of these, those that are not there
	architecture string
	maxLen       int
	configured   bool // maxLen is what config.json says
	local        bool // path is a directory, not the name of a repository
}

// readModel looks at the model directory. A name that is no absolute path is taken for a repository on the Hub, which
// the simulation has always downloaded already.
func readModel(path string) modelDir {
	m := modelDir{path: path, shards: 4, architecture: "LlamaForCausalLM", maxLen: 8192}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		m.local = true
	}
	var config struct {
		Architectures         []string `json:"architectures"`
		MaxPositionEmbeddings int      `json:"max_position_embeddings"`
	}
	if readJSON(filepath.Join(path, "config.json"), &config) == nil {
		if len(config.Architectures) > 0 {
			m.architecture = config.Architectures[0]
		}
		if config.MaxPositionEmbeddings > 0 {
			m.maxLen, m.configured = config.MaxPositionEmbeddings, true
		}
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if readJSON(filepath.Join(path, "model.safetensors.index.json"), &index) == nil && len(index.WeightMap) > 0 {
		files := map[string]bool{}
		for _, file := range index.WeightMap {
			files[file] = true
		}
		m.shards = len(files)
		for file := range files {
			m.files = append(m.files, filepath.Join(path, file))
			if _, err := os.Stat(filepath.Join(path, file)); errors.Is(err, os.ErrNotExist) {
				m.missing = append(m.missing, filepath.Join(path, file))
			}
		}
		sort.Strings(m.missing)
	}
	return m
}

func readJSON(path string, v any) error {
	const limit = 256 << 20 // the index of a model with many experts is tens of megabytes
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > limit {
		return errors.New("not a regular file of a sensible size")
	}
	return json.NewDecoder(f).Decode(v)
}
