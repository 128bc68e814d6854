package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	indexFile        = "model.safetensors.index.json"
	mistralIndexFile = "consolidated.safetensors.index.json"
)

// workers bounds how many files are read at once: enough to hide the latency of a cold disk, few enough for memory.
const workers = 4

// maxConfig bounds config.json. Real ones have a few kilobytes.
const maxConfig = 8 << 20

// checker is one check of one directory.
type checker struct {
	ctx    context.Context
	dir    *directory
	seed   maphash.Seed
	report Report

	mu sync.Mutex // guards report while files are checked
}

func (c *checker) run() error {
	c.seed = maphash.MakeSeed()
	dir, only := c.report.Dir, ""
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		if filepath.Ext(dir) != ".gguf" {
			c.problem("", UnknownFormat, "is a file, and not a .gguf")
			c.conclude()
			return nil
		}
		dir, only = filepath.Split(dir)
	}
	var err error
	c.dir, err = openDirectory(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.problem("", Missing, "does not exist")
		c.conclude()
		return nil
	case err != nil:
		return cause(err)
	}
	defer c.dir.close()
	found, err := c.dir.list()
	if err != nil {
		return cause(err)
	}
	if only != "" {
		found = listing{gguf: sameSplit(only, found.gguf)}
	}
	c.weights(found)
	c.conclude()
	return c.ctx.Err() // what was cut short by it, is no finding
}

// weights finds out what vLLM would load from the directory, in the order in which it decides (load_format "auto"), and
// checks that.
func (c *checker) weights(found listing) {
	consolidated := slices.DeleteFunc(slices.Clone(found.safetensors), func(name string) bool {
		return !strings.HasPrefix(name, "consolidated")
	})
	switch {
	case found.empty:
		c.problem("", Missing, "is empty (not mounted?)")
	case len(consolidated) > 0:
		c.report.Format = Mistral
		if !c.exists("params.json") { // which stands for config.json in this format
			c.config("config.json")
		}
		c.safetensors(mistralIndexFile, consolidated)
	case len(found.safetensors) > 0 || c.exists(indexFile):
		c.report.Format = Safetensors
		c.config("config.json")
		c.safetensors(indexFile, found.safetensors)
	case len(found.gguf) > 0:
		c.report.Format, c.report.Level = GGUF, LevelNames
		c.files(named(expectGGUF(found.gguf)), func(file *os.File, _ int64, _ shard) error { return checkGGUF(file) })
	case len(found.pytorch) > 0:
		c.report.Format = PyTorch
		c.problem("", UnknownFormat, "has its weights in PyTorch's format (*.bin, *.pt), which cannot be checked")
	case c.exists("config.json"):
		c.problem("", Incomplete, "holds no weights")
	default:
		c.problem("", UnknownFormat, "is no model's: no config.json, no weights")
	}
}

// shardName is how the parts of a model are named that come with an index.
var shardName = regexp.MustCompile(`-\d+-of-\d+\.safetensors$`)

// safetensors checks the files that the index names, or all that are there if there is no index, as vLLM loads them.
func (c *checker) safetensors(index string, present []string) {
	file, _, err := c.dir.open(index)
	var shards []shard
	switch {
	case err == nil:
		defer file.Close()
		if shards, err = readIndex(c.reader(file), c.seed); err != nil {
			c.problem(index, Corrupt, "is damaged: "+cause(err).Error())
			return
		}
		c.report.Indexed = true
	case c.exists(index): // and cannot be opened
		c.fileProblem(index, err)
		return
	default:
		shards = named(present)
		if name := slices.IndexFunc(present, shardName.MatchString); name >= 0 {
			c.problem(index, Incomplete, "is missing: nothing says which shards there are beside "+plain(present[name]))
		}
	}
	c.report.Level = LevelSizes
	var lacking []lack
	c.files(shards, func(file *os.File, length int64, want shard) error {
		h, err := checkSafetensors(c, file, length)
		if err != nil {
			return err
		}
		if l := lacks(want, h); l.count > 0 {
			c.mu.Lock()
			lacking = append(lacking, l)
			c.mu.Unlock()
			return errReported
		}
		return nil
	})
	for i, l := range lacking {
		example := ""
		if i < 3 { // each takes another reading of the index
			example = ", such as " + plain(c.tensorName(file, l.first))
		}
		c.problem(l.shard.file, Corrupt, fmt.Sprintf("lacks %d of the %d tensors the index places in it%s",
			l.count, len(l.shard.tensors), example))
	}
	if c.report.Indexed && c.report.Bytes == 0 && len(present) > 0 {
		c.problem(index, Incomplete, fmt.Sprintf("names none of the %d files that are there: is it another model's?", len(present)))
	}
}

// errReported is for a file whose problem is reported elsewhere.
var errReported = errors.New("reported")

// lack is a shard without some of the tensors that the index places in it. vLLM loads such quantized models silently.
type lack struct {
	shard shard
	count int
	first uint64 // hash of the name of one of them
}

// lacks looks up what the index wants. Tensors that the index does not know are in nobody's way.
func lacks(want shard, have header) lack {
	l := lack{shard: want}
	for _, tensor := range want.tensors {
		if _, ok := slices.BinarySearch(have.tensors, tensor); !ok {
			l.first = tensor
			l.count++
		}
	}
	return l
}

// tensorName reads the index once more.
func (c *checker) tensorName(index *os.File, hash uint64) string {
	if _, err := index.Seek(0, io.SeekStart); err != nil {
		return ""
	}
	return tensorName(c.reader(index), c.seed, hash)
}

// named makes shards of files that no index describes.
func named(files []string) []shard {
	slices.Sort(files)
	shards := make([]shard, len(files))
	for i, file := range files {
		shards[i].file = file
	}
	return shards
}

// sameSplit returns the files among present that belong to the GGUF file name: itself and the parts of its split.
func sameSplit(name string, present []string) []string {
	wanted := expectGGUF([]string{name})
	return slices.DeleteFunc(present, func(other string) bool { return !slices.Contains(wanted, other) })
}

// files opens and checks the files, several at once, and counts them in the report.
func (c *checker) files(shards []shard, check func(*os.File, int64, shard) error) {
	c.report.Want = len(shards)
	next := make(chan shard)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for s := range next {
				c.file(s, check)
			}
		})
	}
	for _, s := range shards {
		if c.ctx.Err() != nil {
			break
		}
		next <- s
	}
	close(next)
	group.Wait()
}

func (c *checker) file(s shard, check func(*os.File, int64, shard) error) {
	file, length, err := c.dir.open(s.file)
	if err == nil {
		defer file.Close()
		err = check(file, length, s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Bytes += length
	switch {
	case err == nil:
		c.report.Files++
	case err != errReported:
		c.fileProblem(s.file, err)
	}
}

// config checks that a JSON file of the model's description can be read.
func (c *checker) config(name string) {
	file, length, err := c.dir.open(name)
	if err != nil {
		c.fileProblem(name, err)
		return
	}
	defer file.Close()
	if length > maxConfig {
		c.problem(name, Corrupt, fmt.Sprintf("is %s bytes long, which no description of a model is", count(length)))
		return
	}
	text, err := io.ReadAll(io.LimitReader(file, maxConfig))
	if err != nil {
		c.problem(name, Corrupt, fmt.Sprintf("cannot be read: %v", cause(err)))
		return
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		c.problem(name, Corrupt, fmt.Sprintf("is not valid JSON: %v", err))
	}
}

func (c *checker) exists(name string) bool {
	_, err := c.dir.root.Lstat(filepath.Join(c.dir.in, name))
	return err == nil
}

func (c *checker) problem(file string, state State, why string) {
	c.report.Problems = append(c.report.Problems, Problem{File: file, Why: why, State: state})
}

func (c *checker) fileProblem(file string, err error) {
	state := Corrupt
	if absent := absentError(""); errors.As(err, &absent) {
		state = Incomplete
	}
	c.problem(file, state, err.Error())
}

// conclude sorts the problems and lets the worst decide.
func (c *checker) conclude() {
	r := &c.report
	slices.SortStableFunc(r.Problems, func(a, b Problem) int { return strings.Compare(a.File, b.File) })
	order := []State{Complete, Incomplete, Corrupt, UnknownFormat, Missing}
	worst := 0
	for _, p := range r.Problems {
		worst = max(worst, slices.Index(order, p.State))
	}
	if r.State = order[worst]; r.State != Complete {
		r.Level = LevelNone
	}
}

// reader makes reads from source end with ctx.
func (c *checker) reader(source io.Reader) io.Reader { return contextReader{c.ctx, source} }

type contextReader struct {
	ctx    context.Context
	source io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.source.Read(b)
}

// cause strips the operation and path from an error of package os.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
