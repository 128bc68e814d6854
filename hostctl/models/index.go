package models

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"path/filepath"
	"slices"
)

// shard is one weight file that an index names.
type shard struct {
	file    string
	tensors []uint64 // hashes of the names of the tensors the index places in it
}

const maxIndexedTensors = 4 << 20 // 32 MB of hashes; the largest models have some hundred thousand

// readIndex reads a model.safetensors.index.json: {"metadata": {..}, "weight_map": {TENSOR: FILE, ..}}. The shards come in
// order of their names. metadata.total_size is not read: it is wrong in too many published models.
func readIndex(source io.Reader, seed maphash.Seed) ([]shard, error) {
	byFile := make(map[string]*shard)
	err := eachIndexed(source, func(tensor uint64, file []byte) error {
		entry, ok := byFile[string(file)]
		if !ok {
			if !filepath.IsLocal(string(file)) {
				return fmt.Errorf("it names %q, which is outside the model directory", file)
			}
			if len(byFile) == maxWeightFiles {
				return fmt.Errorf("it names more than %d files", maxWeightFiles)
			}
			entry = &shard{file: string(file)}
			byFile[entry.file] = entry
		}
		entry.tensors = append(entry.tensors, tensor)
		return nil
	}, func(name []byte) uint64 { return maphash.Bytes(seed, name) })
	if err != nil {
		return nil, err
	}
	if len(byFile) == 0 {
		return nil, errors.New("its weight_map is empty or absent")
	}
	shards := make([]shard, 0, len(byFile))
	for _, entry := range byFile {
		shards = append(shards, *entry)
	}
	slices.SortFunc(shards, func(a, b shard) int { return cmp.Compare(a.file, b.file) })
	return shards, nil
}

// tensorName finds the name of a tensor in an index by its hash, for messages.
func tensorName(source io.Reader, seed maphash.Seed, hash uint64) string {
	found := ""
	eachIndexed(source, func(string, []byte) error { return nil }, func(name []byte) string {
		if found == "" && maphash.Bytes(seed, name) == hash {
			found = string(name)
		}
		return ""
	})
	return found
}

// eachIndexed calls visit for each entry of an index's weight_map, with what key made of the tensor's name: the name
// itself is gone by the time its file is read.
func eachIndexed[T any](source io.Reader, visit func(T, []byte) error, key func([]byte) T) error {
	s := newScanner(source)
	count := 0
	err := s.object(func() error {
		name, err := s.str()
		if err != nil {
			return err
		}
		isMap := string(name) == "weight_map"
		if err := s.colon(); err != nil {
			return err
		}
		if !isMap {
			return s.skip()
		}
		return s.object(func() error {
			name, err := s.str()
			if err != nil {
				return err
			}
			if count++; count > maxIndexedTensors {
				return fmt.Errorf("it names more than %d tensors", maxIndexedTensors)
			}
			tensor := key(name)
			if err := s.colon(); err != nil {
				return err
			}
			file, err := s.str()
			if err != nil {
				return err
			}
			return visit(tensor, file)
		})
	})
	if err != nil {
		return err
	}
	return s.finish()
}
