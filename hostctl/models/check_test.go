package models_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"vllmhost/hostctl/models"
)

const (
	first  = "model-00001-of-00003.safetensors"
	second = "model-00002-of-00003.safetensors"
	third  = "model-00003-of-00003.safetensors"
	idx    = "model.safetensors.index.json"
)

// Each case breaks a complete model of three shards in one way.
func TestCheck(t *testing.T) {
	tests := map[string]struct {
		change func(model)
		want   string
	}{
		"nothing": {
			func(m model) {},
			"complete: 3 of 3 shards, 810 B",
		},
		"a shard is missing": {
			func(m model) { delete(m, second) },
			"incomplete: 2 of 3 shards, 540 B; " + second + " is missing",
		},
		"more are missing than one line holds": {
			func(m model) { delete(m, first); delete(m, second); delete(m, third); delete(m, "config.json") },
			"incomplete: 0 of 3 shards, 0 B; config.json is missing; " + first + " is missing; " + second + " is missing; and 1 more",
		},
		"a shard is cut in its data": {
			func(m model) { m[second] = m[second][:200] },
			"corrupt: 2 of 3 shards, 740 B; " + second + " is 200 bytes, its header needs 270 (download interrupted?)",
		},
		"a shard is cut in its header": {
			func(m model) { m[second] = m[second][:100] },
			"corrupt: 2 of 3 shards, 640 B; " + second + " is 100 bytes, its header alone needs 160 (download interrupted?)",
		},
		"a shard is cut in the length of its header": {
			func(m model) { m[second] = m[second][:5] },
			"corrupt: 2 of 3 shards, 545 B; " + second + " does not begin with a safetensors header",
		},
		"a shard is too long": {
			func(m model) { m[second] = append(m[second], 0) },
			"corrupt: 2 of 3 shards, 811 B; " + second + " is 271 bytes, its header accounts for only 270",
		},
		"a shard is empty": {
			func(m model) { m[second] = nil },
			"corrupt: 2 of 3 shards, 540 B; " + second + " is empty",
		},
		"a shard is zeros": {
			func(m model) { clear(m[second]) },
			"corrupt: 2 of 3 shards, 810 B; " + second + " begins with zeros: the data never reached the disk (power failure, preallocated download?)",
		},
		"a shard is a git-lfs pointer": {
			func(m model) {
				m[second] = []byte("version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 4984102400\n")
			},
			"corrupt: 2 of 3 shards, 615 B; " + second + " is a git-lfs pointer to a file of 4.98 GB, not the file",
		},
		"a shard is an error page": {
			func(m model) { m[second] = []byte("<!DOCTYPE html><html><body>403 Forbidden</body></html>") },
			"corrupt: 2 of 3 shards, 594 B; " + second + ` begins with "<" as a web page does`,
		},
		"the length of a header has the first byte of a web page": {
			func(m model) {
				m[second] = tensorFile(tensor{"model.layers.2.weight", 0, 100}, tensor{"model.layers.2.bias", 100, 110},
					tensor{strings.Repeat("x", 109), 110, 111})
				if m[second][0] != '<' {
					panic(m[second][0])
				}
			},
			"complete: 3 of 3 shards, 975 B",
		},
		"a shard lacks a tensor": {
			func(m model) { m[second] = tensorFile(tensor{"model.layers.2.weight", 0, 120}) },
			"corrupt: 2 of 3 shards, 745 B; " + second + " lacks 1 of the 2 tensors the index places in it, such as model.layers.2.bias",
		},
		"a shard is another one": {
			func(m model) { m[second] = m[third] },
			"corrupt: 2 of 3 shards, 810 B; " + second + " lacks 2 of the 2 tensors the index places in it, such as model.layers.2.",
		},
		"a shard has a tensor that the index does not know": {
			func(m model) {
				m[second] = tensorFile(tensor{"model.layers.2.weight", 0, 100}, tensor{"model.layers.2.bias", 100, 110}, tensor{"extra", 110, 111})
			},
			"complete: 3 of 3 shards, 871 B",
		},
		"a file that the index does not name is broken": {
			func(m model) { m["adapter.safetensors"] = []byte("x") },
			"complete: 3 of 3 shards, 810 B",
		},
		"the index is of another model": {
			func(m model) { m[idx] = index(map[string]string{"a": "model-00001-of-00001.safetensors"}) },
			"incomplete: 0 of 1 shards, 0 B; model-00001-of-00001.safetensors is missing; " + idx + " names none of the 3 files that are there: is it another model's?",
		},
		"the index is missing": {
			func(m model) { delete(m, idx) },
			"incomplete: 3 of 3 files, 810 B; " + idx + " is missing: nothing says which shards there are beside " + first,
		},
		"the index is cut": {
			func(m model) { m[idx] = m[idx][:len(m[idx])/2] },
			"corrupt: no weights; " + idx + " is damaged: its JSON ends too early",
		},
		"the index names no file": {
			func(m model) { m[idx] = []byte(`{"metadata": {}}`) },
			"corrupt: no weights; " + idx + " is damaged: its weight_map is empty or absent",
		},
		"the index leads out of the directory": {
			func(m model) { m[idx] = index(map[string]string{"a": "../../etc/passwd"}) },
			"corrupt: no weights; " + idx + ` is damaged: it names "../../etc/passwd", which is outside the model directory`,
		},
		"config.json is missing": {
			func(m model) { delete(m, "config.json") },
			"incomplete: 3 of 3 shards, 810 B; config.json is missing",
		},
		"config.json is cut": {
			func(m model) { m["config.json"] = []byte(`{"architectures": [`) },
			"corrupt: 3 of 3 shards, 810 B; config.json is not valid JSON: unexpected end of JSON input",
		},
		"a file is named by an attacker": {
			func(m model) { m[idx] = index(map[string]string{"a": "\x1b[2Jx.safetensors"}) },
			`incomplete: 0 of 1 shards, 0 B; "\x1b[2Jx.safetensors" is missing; ` + idx + " names none of the 3 files that are there: is it another model's?",
		},
		"one file without an index": {
			func(m model) {
				clear(m)
				m["config.json"] = []byte("{}")
				m["model.safetensors"] = tensorFile(tensor{"a", 0, 5_000})
			},
			"complete: 1 file, 5.07 kB",
		},
		"several files without an index": {
			func(m model) {
				clear(m)
				m["config.json"] = []byte("{}")
				m["a.safetensors"] = tensorFile(tensor{"a", 0, 10})
				m["b.safetensors"] = tensorFile(tensor{"b", 0, 10})[:70]
			},
			"corrupt: 1 of 2 files, 143 B; b.safetensors is 70 bytes, its header needs 73 (download interrupted?)",
		},
		// vLLM would load the consolidated file and never look at the shards.
		"a consolidated file beside the shards": {
			func(m model) { m["consolidated.safetensors"] = m[first][:200] },
			"corrupt: 0 of 1 files, 200 B; consolidated.safetensors is 200 bytes, its header needs 270 (download interrupted?)",
		},
		"a consolidated file alone": {
			func(m model) {
				file := m[first]
				clear(m)
				m["params.json"], m["consolidated.safetensors"] = []byte("{}"), file
			},
			"complete: 1 file, 270 B",
		},
		"PyTorch": {
			func(m model) { clear(m); m["config.json"], m["pytorch_model.bin"] = []byte("{}"), []byte("PK") },
			"unknown-format: no weights; the directory has its weights in PyTorch's format (*.bin, *.pt), which cannot be checked",
		},
		"only a config": {
			func(m model) { clear(m); m["config.json"] = []byte("{}") },
			"incomplete: no weights; the directory holds no weights",
		},
		"something else": {
			func(m model) { clear(m); m["README"] = nil },
			"unknown-format: no weights; the directory is no model's: no config.json, no weights",
		},
		"an empty directory": {
			func(m model) { clear(m) },
			"missing: no weights; the directory is empty (not mounted?)",
		},
		"GGUF": {
			func(m model) { clear(m); m["a.gguf"] = gguf(3) },
			"complete: 1 file, 24 B",
		},
		"GGUF of the future": {
			func(m model) { clear(m); m["a.gguf"] = gguf(9) },
			"corrupt: 0 of 1 files, 24 B; a.gguf is GGUF of the unknown version 9",
		},
		"GGUF that is not": {
			func(m model) { clear(m); m["a.gguf"] = []byte("GGML, once upon a time") },
			`corrupt: 0 of 1 files, 22 B; a.gguf does not begin with "GGUF"`,
		},
		"GGUF with a part missing": {
			func(m model) {
				clear(m)
				m["a-00001-of-00003.gguf"], m["a-00003-of-00003.gguf"] = gguf(3), gguf(3)
			},
			"incomplete: 2 of 3 files, 48 B; a-00002-of-00003.gguf is missing",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := sharded(3)
			test.change(m)
			report := check(t, m.write(t, t.TempDir()))
			// The tensor that a shard lacks is any of them.
			if got := report.String(); got != test.want && !strings.HasPrefix(got, test.want+"weight") && !strings.HasPrefix(got, test.want+"bias") {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if (report.State == models.Complete) != (len(report.Problems) == 0) {
				t.Errorf("state %s with problems %v", report.State, report.Problems)
			}
			if (report.Level > models.LevelNone) != (report.State == models.Complete) {
				t.Errorf("state %s at level %d", report.State, report.Level)
			}
		})
	}
}

func gguf(version byte) []byte {
	return append([]byte{'G', 'G', 'U', 'F', version, 0, 0, 0}, make([]byte, 16)...)
}

func check(t testing.TB, dir string) models.Report {
	t.Helper()
	report, err := models.Check(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestCheckOneGGUFFile(t *testing.T) {
	dir := model{
		"big-00001-of-00002.gguf": gguf(3), "big-00002-of-00002.gguf": gguf(3),
		"other.gguf": []byte("broken"), "notes.txt": nil,
	}.write(t, t.TempDir())
	if got, want := check(t, filepath.Join(dir, "big-00001-of-00002.gguf")).String(), "complete: 2 of 2 files, 48 B"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := check(t, filepath.Join(dir, "other.gguf")).State; got != models.Corrupt {
		t.Errorf("a broken file is %s", got)
	}
	if got := check(t, filepath.Join(dir, "notes.txt")).State; got != models.UnknownFormat {
		t.Errorf("a text file is %s", got)
	}
	if got := check(t, filepath.Join(dir, "absent.gguf")).State; got != models.Missing {
		t.Errorf("an absent file is %s", got)
	}
}

// The names in an index are whatever the publisher liked: Kimi-K2.5 has six digits after "of", MiniMax-M2.5 counts from 0.
func TestNamesAreNotCounted(t *testing.T) {
	m := model{
		"config.json":                           []byte("{}"),
		"model-00000-of-00130.safetensors":      tensorFile(tensor{"a", 0, 1}),
		"sub/model-00009-of-000064.safetensors": tensorFile(tensor{"b", 0, 1}),
		"model.safetensors.index.json": index(map[string]string{
			"a": "model-00000-of-00130.safetensors", "b": "sub/model-00009-of-000064.safetensors"}),
	}
	if got, want := check(t, m.write(t, t.TempDir())).String(), "complete: 2 of 2 shards, 124 B"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCheckEndsWithItsContext(t *testing.T) {
	dir := sharded(3).write(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := models.Check(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
}
