package models

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
	"strings"
)

// maxHeader is the longest header that safetensors itself accepts (safetensors/src/tensor.rs, MAX_HEADER_SIZE).
const maxHeader = 100_000_000

const maxTensors = 1 << 20 // in one file; 8 MB of hashes

// header is what a safetensors header says: https://github.com/huggingface/safetensors, "Format".
type header struct {
	tensors []uint64 // hashes of the tensors' names, sorted
	data    uint64   // bytes of data after the header
}

// checkSafetensors reads the header of a safetensors file of the given size and says what is wrong with the file, in the
// words of a Problem. It is the loader's own rule: the header is valid, its tensors fill the data without gap or overlap,
// and the file ends where they end.
func checkSafetensors(c *checker, file *os.File, length int64) (header, error) {
	// The begin of the file usually holds the whole header's start and any pointer in its place.
	var begin [512]byte
	n, err := file.ReadAt(begin[:], 0)
	if err != nil && err != io.EOF {
		return header{}, fmt.Errorf("cannot be read: %v", cause(err))
	}
	if n < 10 || begin[8] != '{' || binary.LittleEndian.Uint64(begin[:]) > maxHeader {
		if err := checkStandIn(begin[:n]); err != nil {
			return header{}, err
		}
		return header{}, errors.New("does not begin with a safetensors header")
	}
	size := binary.LittleEndian.Uint64(begin[:])
	if uint64(length)-8 < size {
		return header{}, fmt.Errorf("is %s bytes, its header alone needs %s (download interrupted?)", count(length), count(size+8))
	}
	h, err := readHeader(c.reader(io.NewSectionReader(file, 8, int64(size))), c.seed)
	if err != nil {
		return header{}, fmt.Errorf("has a damaged header: %v", cause(err))
	}
	switch need := 8 + size + h.data; {
	case uint64(length) < need:
		return h, fmt.Errorf("is %s bytes, its header needs %s (download interrupted?)", count(length), count(need))
	case uint64(length) > need:
		return h, fmt.Errorf("is %s bytes, its header accounts for only %s", count(length), count(need))
	}
	return h, nil
}

// checkStandIn recognises, by its first bytes, what lies in the place of a weight file when a download went wrong. It is
// for files that are known not to be weights: a safetensors file begins with the length of its header, hence with any byte.
func checkStandIn(begin []byte) error {
	switch {
	case len(begin) == 0:
		return errors.New("is empty")
	case bytes.HasPrefix(begin, []byte("version https://git-lfs")):
		return errors.New(lfsPointer(string(begin)))
	case len(bytes.Trim(begin, "\x00")) == 0:
		return errors.New("begins with zeros: the data never reached the disk (power failure, preallocated download?)")
	case begin[0] == '<':
		return errors.New(`begins with "<" as a web page does`)
	}
	return nil
}

// lfsPointer describes a git-lfs pointer (https://git-lfs.github.com/spec/v1), which stands for a file not fetched.
func lfsPointer(text string) string {
	for line := range strings.Lines(text) {
		if digits, ok := strings.CutPrefix(strings.TrimSpace(line), "size "); ok && len(digits) < 19 && strings.Trim(digits, "0123456789") == "" {
			var n int64
			fmt.Sscan(digits, &n)
			return "is a git-lfs pointer to a file of " + size(n) + ", not the file"
		}
	}
	return "is a git-lfs pointer, not the file"
}

// readHeader reads the JSON of a header: {NAME: {"dtype": .., "shape": .., "data_offsets": [BEGIN, END]}, ..}.
func readHeader(source io.Reader, seed maphash.Seed) (header, error) {
	s := newScanner(source)
	var h header
	var spans chain
	err := s.object(func() error {
		name, err := s.str()
		if err != nil {
			return err
		}
		if string(name) == "__metadata__" {
			if err := s.colon(); err != nil {
				return err
			}
			return s.skip()
		}
		if len(h.tensors) == maxTensors {
			return fmt.Errorf("it has more than %d tensors", maxTensors)
		}
		h.tensors = append(h.tensors, maphash.Bytes(seed, name))
		if err := s.colon(); err != nil {
			return err
		}
		begin, end, err := readTensor(s)
		if err != nil {
			return err
		}
		h.data = max(h.data, end)
		spans.add(seed, begin, end)
		return nil
	})
	if err == nil {
		err = s.finish()
	}
	if err != nil {
		return header{}, err
	}
	slices.Sort(h.tensors)
	switch {
	case len(slices.Compact(slices.Clone(h.tensors))) < len(h.tensors):
		return header{}, errors.New("it names a tensor twice")
	case !spans.covers(seed, h.data):
		return header{}, errors.New("its tensors overlap or leave gaps")
	}
	return h, nil
}

// readTensor reads one tensor's description and returns where its data is.
func readTensor(s *scanner) (begin, end uint64, err error) {
	seen := false
	err = s.object(func() error {
		key, err := s.str()
		if err != nil {
			return err
		}
		isOffsets := string(key) == "data_offsets"
		if err := s.colon(); err != nil {
			return err
		}
		if !isOffsets {
			return s.skip()
		}
		seen = true
		if begin, end, err = readPair(s); err == nil && begin > end {
			return errors.New("it has a tensor that ends before it begins")
		}
		return err
	})
	if err == nil && !seen {
		err = errors.New("it has a tensor without data_offsets")
	}
	return begin, end, err
}

func readPair(s *scanner) (first, second uint64, err error) {
	if err = s.expect('['); err != nil {
		return 0, 0, err
	}
	if first, err = s.number(); err != nil {
		return 0, 0, err
	}
	if err = s.expect(','); err != nil {
		return 0, 0, err
	}
	if second, err = s.number(); err != nil {
		return 0, 0, err
	}
	return first, second, s.expect(']')
}

// chain proves in constant memory, whatever their order, that spans cover 0 to an end without gap or overlap. Each span is
// an edge from its begin to its end, and edges only lead upwards. If the begins and the end are the same numbers as the
// ends and 0, each as often, then as many edges arrive at every place between as leave it, and the edges are one path from
// 0 to the end. Two collections of numbers are the same if the sums of their secret hashes are.
type chain struct{ balance uint64 }

func (c *chain) add(seed maphash.Seed, begin, end uint64) {
	c.balance += hashNumber(seed, begin) - hashNumber(seed, end)
}

func (c *chain) covers(seed maphash.Seed, end uint64) bool {
	return c.balance+hashNumber(seed, end) == hashNumber(seed, 0)
}

func hashNumber(seed maphash.Seed, n uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	return maphash.Bytes(seed, b[:])
}
