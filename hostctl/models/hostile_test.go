package models

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHeader(t *testing.T) {
	offsets := func(text string) string { return `{"dtype":"F32","shape":[1],"data_offsets":` + text + `}` }
	tests := map[string]struct {
		header string
		want   string // the error, or the bytes of data
	}{
		"none":                    {`{}`, "0"},
		"one tensor":              {`{"a":` + offsets(`[0,4]`) + `}`, "4"},
		"padded":                  {`{"a":` + offsets(`[0,4]`) + "}  \n ", "4"},
		"any order":               {`{"c":` + offsets(`[6,9]`) + `,"a":` + offsets(`[0,4]`) + `,"b":` + offsets(`[4,6]`) + `}`, "9"},
		"a tensor without data":   {`{"a":` + offsets(`[0,4]`) + `,"b":` + offsets(`[4,4]`) + `}`, "4"},
		"metadata":                {`{"__metadata__":{"format":"pt","x":"\"{[\\"},"a":` + offsets(`[0,4]`) + `}`, "4"},
		"keys in another order":   {`{"a":{"data_offsets":[0,4],"shape":[],"dtype":"U8"}}`, "4"},
		"a gap":                   {`{"a":` + offsets(`[0,4]`) + `,"b":` + offsets(`[5,6]`) + `}`, "its tensors overlap or leave gaps"},
		"a gap at the begin":      {`{"a":` + offsets(`[1,4]`) + `}`, "its tensors overlap or leave gaps"},
		"an overlap":              {`{"a":` + offsets(`[0,4]`) + `,"b":` + offsets(`[3,6]`) + `}`, "its tensors overlap or leave gaps"},
		"overlap makes good gap":  {`{"a":` + offsets(`[0,4]`) + `,"b":` + offsets(`[2,4]`) + `,"c":` + offsets(`[6,8]`) + `}`, "its tensors overlap or leave gaps"},
		"the same data twice":     {`{"a":` + offsets(`[0,4]`) + `,"b":` + offsets(`[0,4]`) + `}`, "its tensors overlap or leave gaps"},
		"the same name twice":     {`{"a":` + offsets(`[0,4]`) + `,"a":` + offsets(`[4,8]`) + `}`, "it names a tensor twice"},
		"the same name escaped":   {`{"a":` + offsets(`[0,4]`) + `,"\u0061":` + offsets(`[4,8]`) + `}`, "it names a tensor twice"},
		"backwards":               {`{"a":` + offsets(`[4,0]`) + `}`, "it has a tensor that ends before it begins"},
		"no offsets":              {`{"a":{"dtype":"F32"}}`, "it has a tensor without data_offsets"},
		"three offsets":           {`{"a":` + offsets(`[0,4,8]`) + `}`, "it is not valid JSON"},
		"a negative offset":       {`{"a":` + offsets(`[-4,0]`) + `}`, "it is not valid JSON"},
		"a fraction":              {`{"a":` + offsets(`[0,4.5]`) + `}`, "it is not valid JSON"},
		"an offset past 2^64":     {`{"a":` + offsets(`[0,99999999999999999999999]`) + `}`, "it has a number that is no size of a file"},
		"an array":                {`[]`, "it is not valid JSON"},
		"cut":                     {`{"a":{"dtype`, "its JSON ends too early"},
		"nothing":                 {``, "its JSON ends too early"},
		"something after it":      {`{}{}`, "it is not valid JSON"},
		"zeros after it":          {"{}\x00\x00", "it is not valid JSON"},
		"a control character":     {"{\"a\x01\":" + offsets(`[0,4]`) + "}", "it is not valid JSON"},
		"not UTF-8":               {"{\"a\xff\":" + offsets(`[0,4]`) + "}", "it is not valid JSON"},
		"escapes in names":        {`{"a\"\\\u00e9{": ` + offsets(`[0,4]`) + `}`, "4"},
		"a control in the middle": {"{\"model.layers.\x01.weight\":" + offsets(`[0,4]`) + "}", "it is not valid JSON"},
		"a long name":             {`{"` + strings.Repeat("a", 100_000) + `":1}`, "it has a name longer than 64 KiB"},
		"a long value":            {`{"__metadata__":{"x":"` + strings.Repeat("a", 1_000_000) + `"}}`, "0"},
		"deep arrays":             {`{"__metadata__":` + strings.Repeat("[", 1_000_000), "its JSON is nested deeper than 64 levels"},
		"deep objects":            {`{"__metadata__":` + strings.Repeat(`{"a":`, 1_000_000), "its JSON is nested deeper than 64 levels"},
		"an unknown word":         {`{"__metadata__":nil}`, "it is not valid JSON"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h, err := readHeader(strings.NewReader(test.header), maphash.MakeSeed())
			got := strconv.FormatUint(h.data, 10)
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// The length at the begin of a file is believed only as far as the file and the format go.
func TestHeaderLength(t *testing.T) {
	for _, length := range []uint64{0, 1, 3, maxHeader, maxHeader + 1, 1 << 32, 1 << 60, 1<<63 - 8, 1 << 63, 1<<64 - 8, 1<<64 - 1} {
		file := append(binary.LittleEndian.AppendUint64(nil, length), `{}  `...)
		path := filepath.Join(t.TempDir(), "model.safetensors")
		if err := os.WriteFile(path, file, 0o644); err != nil {
			t.Fatal(err)
		}
		if report, err := Check(t.Context(), filepath.Dir(path)); err != nil || report.State != Corrupt {
			t.Errorf("length %d: %v, %v", length, report, err)
		}
	}
}

// A header that is longer than safetensors allows is not read, even if the file has it.
func TestLongHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	file := append(binary.LittleEndian.AppendUint64(nil, maxHeader+1), '{')
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 3*maxHeader); err != nil {
		t.Fatal(err)
	}
	report, err := Check(t.Context(), filepath.Dir(path))
	if want := "model.safetensors does not begin with a safetensors header"; err != nil || !strings.Contains(report.String(), want) {
		t.Errorf("got %v, %v, want %s", report, err, want)
	}
}

// A long header costs a bounded amount of memory, whatever is in it.
func TestMemory(t *testing.T) {
	const entry = `"%07d":{"data_offsets":[0,0]},`
	var names bytes.Buffer
	for i := range maxTensors + 10 {
		fmt.Fprintf(&names, entry, i)
	}
	tests := map[string]struct{ begin, repeat, want string }{
		"tensors":  {"{" + names.String(), entry, "it has more than 1048576 tensors"},
		"metadata": {`{"__metadata__":{`, `"a":"b",`, errEnds.Error()},
		"a string": {`{"__metadata__":{"a":"`, "aaaaaaaaaaaaaaaa", errEnds.Error()},
		"space":    {`{`, "                ", errEnds.Error()},
		"depth":    {`{"__metadata__":`, `{"a":`, errTooDeep.Error()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			source := io.LimitReader(io.MultiReader(strings.NewReader(test.begin), repeat(test.repeat)), 40<<20)
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := readHeader(source, maphash.MakeSeed())
			runtime.ReadMemStats(&after)
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 48<<20 {
				t.Errorf("%d MB were allocated", used>>20)
			}
		})
	}
}

// repeat is an endless reader of a text.
type repeat string

func (r repeat) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		n += copy(b[n:], r)
	}
	return n, nil
}

func TestReadErrorsAreNotTakenForTheEnd(t *testing.T) {
	broken := errors.New("input/output error")
	for _, text := range []string{``, `{`, `{"a`, `{"a":{"data_offsets":[0,4]}`, `{}`} {
		source := io.MultiReader(strings.NewReader(text), failing{broken})
		if _, err := readHeader(source, maphash.MakeSeed()); !errors.Is(err, broken) {
			t.Errorf("%q: got %v, want %v", text, err, broken)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Whatever encoding/json takes for an index, this package reads the same; what it reads, it reads alike in small pieces.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata": {"total_size": 1.5e3}, "weight_map": {"a": "b", "\u0061\"\\": "b"}}`))
	f.Add([]byte(` { "x" : [ null , true , -1 , "\\" , {} , [ [ ] ] ] , "weight_map" : { } } `))
	f.Add([]byte(`{"weight_map": {"a": "../b"}}`))
	f.Add([]byte(`{"weight_map": 1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		type entry struct{ tensor, file string }
		read := func(source io.Reader) (found []entry, err error) {
			err = eachIndexed(source, func(tensor string, file []byte) error {
				found = append(found, entry{tensor, string(file)})
				return nil
			}, func(name []byte) string { return string(name) })
			return found, err
		}
		got, err := read(bytes.NewReader(text))
		slowly, slowErr := read(oneByte{bytes.NewReader(text)})
		if fmt.Sprint(err) != fmt.Sprint(slowErr) || !slices.Equal(got, slowly) {
			t.Errorf("at once: %q, %v; in pieces: %q, %v", got, err, slowly, slowErr)
		}
		if bytes.Count(text, []byte("weight_map")) != 1 || bytes.Contains(text, []byte(`\`)) {
			return // encoding/json matches names without case, keeps the last of equal ones and mends bad escapes
		}
		var want struct {
			WeightMap map[string]string `json:"weight_map"`
		}
		if json.Unmarshal(text, &want) != nil || want.WeightMap == nil || bytes.Contains(text, []byte("null")) {
			return
		}
		if err != nil && err != errTooDeep && err != errTooLong && !bytes.ContainsFunc(text, func(r rune) bool { return r == '\ufffd' }) {
			t.Fatalf("valid JSON is refused: %v", err)
		}
		if err == nil {
			have := make(map[string]string)
			for _, e := range got {
				have[e.tensor] = e.file
			}
			if diff := cmp.Diff(want.WeightMap, have); diff != "" {
				t.Errorf("wrong entries (-want +got):\n%s", diff)
			}
		}
	})
}

type oneByte struct{ source io.Reader }

func (o oneByte) Read(b []byte) (int, error) { return o.source.Read(b[:min(len(b), 1)]) }

// FuzzHeader looks for crashes, and for headers that this package takes and the loader's own rule does not.
func FuzzHeader(f *testing.F) {
	f.Add([]byte(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"data_offsets":[4,8]}}`))
	f.Add([]byte(`{"__metadata__":{"a":"b"},"a":{"data_offsets":[0,4]},"b":{"data_offsets":[2,4]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := readHeader(bytes.NewReader(text), maphash.MakeSeed())
		if err != nil || !json.Valid(text) {
			return
		}
		var tensors map[string]struct {
			Offsets [2]uint64 `json:"data_offsets"`
		}
		if json.Unmarshal(text, &tensors) != nil {
			return
		}
		delete(tensors, "__metadata__")
		var spans [][2]uint64
		for _, tensor := range tensors {
			spans = append(spans, tensor.Offsets)
		}
		slices.SortFunc(spans, func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
		var at uint64
		for _, span := range spans {
			if span[0] == span[1] {
				continue
			}
			if span[0] != at {
				t.Fatalf("%q: a gap or an overlap at %d", text, at)
			}
			at = span[1]
		}
		if at != h.data {
			t.Errorf("%q: %d bytes of data, want %d", text, h.data, at)
		}
	})
}
