package unitgen

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// SectionFormat is the newest format of the [X-Vllmhost] section that this program writes and fully knows. Formats
// only grow: a key, once written, keeps its name and meaning for ever, so that a newer program reads older units and
// an older one uses what it knows of newer ones.
const SectionFormat = 1

// Section is the [X-Vllmhost] section of a unit: all that guard, await and swap need to know about an instance, so
// that a broken or newer profile never keeps a model from starting. systemd ignores sections named X-
// (systemd.unit(5)). The zero value of a field is not written.
type Section struct {
	Format    int    `unit:"Format"`    // SectionFormat of the program that wrote it
	Instance  string `unit:"Instance"`  // the unit is vllm-INSTANCE.service
	ModelName string `unit:"ModelName"` // [model.NAME]
	Model     string `unit:"Model"`     // directory of the weights
	Repo      string `unit:"Repo"`      // OWNER/NAME on the Hub, for people
	Engine    string `unit:"Engine"`    // [engine.NAME]
	Command   string `unit:"Command"`   // the vllm program

	Port    int      `unit:"Port"`        // TCP port, 0 with UDS
	Host    string   `unit:"Host"`        // address served on
	UDS     string   `unit:"UDS"`         // unix socket served on
	TLS     bool     `unit:"TLS"`         // whether the port speaks TLS
	Served  []string `unit:"ServedNames"` // names the model answers to
	EnvFile string   `unit:"EnvFile"`     // where VLLM_API_KEY may be

	AllGPUs        bool     `unit:"AllGPUs"`              // every GPU of the host
	GPUs           []string `unit:"GPUs"`                 // or these: all indices, or all UUIDs
	GPUCount       int      `unit:"GPUCount"`             // GPUs the host must have; 0 when the profile does not say
	ShareGPUs      bool     `unit:"ShareGPUs"`            // may share them with others that also may
	GPUUtilization float64  `unit:"GPUMemoryUtilization"` // share of each GPU's memory; 0 is vLLM's default

	User    string `unit:"User"`    // the engine's user, dynamic or not
	Dynamic bool   `unit:"Dynamic"` // the user exists while the unit runs
	Shm     string `unit:"Shm"`     // "private" or "host"

	DrainTimeout time.Duration `unit:"DrainTimeout"`
	StallTimeout time.Duration `unit:"StallTimeout"`
	StartTimeout time.Duration `unit:"StartTimeout"`

	MinSingleTPS        float64       `unit:"MinSingleTPS"`
	MinLoadTPS          float64       `unit:"MinLoadTPS"`
	MaxRegression       float64       `unit:"MaxRegression"` // a fraction: 0.1
	RequireLoad         bool          `unit:"RequireLoad"`
	FirstRequestTimeout time.Duration `unit:"FirstRequestTimeout"`
	Logprobs            string        `unit:"Logprobs"`
	Allow               []string      `unit:"Allow"` // findings accepted
}

const sectionHeader = "[X-Vllmhost]"

// ErrNotOurs is returned for a unit without an [X-Vllmhost] section: somebody else wrote it.
var ErrNotOurs = errors.New("not written by vllmhost")

// ParseSection reads the [X-Vllmhost] section of a unit's text. It returns ErrNotOurs when there is none, and an error
// when a value it knows cannot be read. Keys it does not know are left out: a newer program wrote them.
func ParseSection(text []byte) (Section, error) {
	var s Section
	found := false
	fields := map[string]reflect.Value{}
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		fields[v.Type().Field(i).Tag.Get("unit")] = v.Field(i)
	}
	for _, d := range parse(text) {
		if d.section != sectionHeader {
			continue
		}
		found = true
		field, known := fields[d.key]
		if !known {
			continue
		}
		if err := setField(field, d.value); err != nil {
			return s, fmt.Errorf("cannot read %s=%s of [X-Vllmhost]: %v", d.key, d.value, err)
		}
	}
	switch {
	case !found:
		return s, ErrNotOurs
	case s.Format < 1 || s.Instance == "":
		return s, errors.New("cannot read [X-Vllmhost]: Format= or Instance= is missing")
	}
	return s, nil
}

func setField(f reflect.Value, value string) error {
	switch p := f.Addr().Interface().(type) {
	case *string:
		*p = strings.Join(splitWords(value), " ")
	case *[]string:
		*p = splitWords(value)
	case *bool:
		*p = value == "yes"
	case *int:
		n, err := strconv.Atoi(value)
		*p = n
		return err
	case *float64:
		x, err := strconv.ParseFloat(value, 64)
		*p = x
		return err
	case *time.Duration:
		d, err := time.ParseDuration(value)
		*p = d
		return err
	default:
		panic(fmt.Sprintf("internal error: no way to read a %T", p))
	}
	return nil
}

// write adds the section to a unit, without its hash.
func (s Section) write(w *writer) {
	w.line(sectionHeader)
	fields := reflect.ValueOf(s)
	for i := range fields.NumField() {
		f := fields.Field(i)
		if f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 {
			continue
		}
		w.set(fields.Type().Field(i).Tag.Get("unit"), fieldText(f))
	}
}

func fieldText(f reflect.Value) string {
	switch v := f.Interface().(type) {
	case string:
		return Quote(v)
	case []string:
		return quoteAll(v)
	case bool:
		return "yes"
	case int:
		return strconv.Itoa(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case time.Duration:
		return v.String()
	default:
		panic(fmt.Sprintf("internal error: no way to write a %T", v))
	}
}

const hashKey = "Hash="

// Hash names a text: SHA-256, in hex.
func Hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Seal ends a unit's text, whose last section is [X-Vllmhost], with the hash of all that stands before it.
func Seal(text []byte) []byte {
	return append(bytes.Clone(text), hashKey+Hash(text)+"\n"...)
}

// Edited reports whether a unit of ours was changed after it was written: its hash, the last line, does not fit.
func Edited(text []byte) bool {
	lastLine := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1
	return !bytes.Equal(Seal(text[:lastLine]), text)
}
