package models_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// sparse writes a model of 119 shards of 4.5 GB, in which only the headers take space, with as many tensors as a mixture of
// 384 experts in 61 layers has.
func sparse(t testing.TB, dir string, tensors int) {
	t.Helper()
	const shards, data = 119, 4_500_000_000
	model{"config.json": []byte("{}")}.write(t, dir)
	weightMap := make(map[string]string)
	for i := 1; i <= shards; i++ {
		file := shardFile(i, shards)
		var list []tensor
		for j := range tensors / shards {
			name := fmt.Sprintf("language_model.model.layers.%d.mlp.experts.%d.down_proj.weight_packed", i, j)
			weightMap[name] = file
			list = append(list, tensor{name, j * 1000, (j + 1) * 1000})
		}
		list[len(list)-1].end = data
		content := tensorHeader(list...)
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, int64(len(content))+data); err != nil {
			t.Fatal(err)
		}
	}
	model{"model.safetensors.index.json": index(weightMap)}.write(t, dir)
}

// BenchmarkCheck is a check of 119 shards, once as small models are cut and once with the headers of a mixture of experts.
// The floor is the same headers read with dd: one read of 8 bytes and one of the header for each file.
func BenchmarkCheck(b *testing.B) {
	for _, tensors := range []int{119 * 20, 210_000} {
		dir := b.TempDir()
		sparse(b, dir, tensors)
		b.Run(fmt.Sprintf("tensors=%d", tensors), func(b *testing.B) {
			for b.Loop() {
				if report := check(b, dir); report.State != "complete" {
					b.Fatal(report)
				}
			}
			var usage syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
				b.ReportMetric(float64(usage.Maxrss)/1000, "RSS-MB")
			}
		})
	}
}
