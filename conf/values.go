package conf

import (
	"math"
	"strconv"
)

// Percent is a share of one hundred, written with its sign: "10%". Stored as a fraction: 0.1.
type Percent float64

var percentForm = lazily(`^[0-9]{1,3}(\.[0-9]{1,6})?%$`)

// UnmarshalTOML reads a string such as "10%" or "2.5%", from "0%" to "100%".
func (p *Percent) UnmarshalTOML(value any) error {
	s, ok := value.(string)
	switch v := value.(type) {
	case int64:
		return wants("a percentage", value).hinted(`write "%d%%"`, v)
	case float64:
		if v < 1 {
			v *= 100 // it was meant as a fraction
		}
		return wants("a percentage", value).hinted(`write "%v%%"`, v)
	}
	if !ok {
		return wants("a percentage", value).hinted(`such as "10%%"`)
	}
	if !percentForm().MatchString(s) {
		return faultf("wants a percentage, got %s", quote(s)).hinted(`such as "10%%"`)
	}
	x, err := strconv.ParseFloat(s[:len(s)-1], 64)
	if err != nil || x > 100 {
		return faultf("must be at most 100%%")
	}
	*p = Percent(x / 100)
	return nil
}

// String writes it as a profile does: "10%".
func (p Percent) String() string {
	const digits = 1e6 // what UnmarshalTOML reads
	return strconv.FormatFloat(math.Round(float64(p)*100*digits)/digits, 'f', -1, 64) + "%"
}

// Port is a TCP port, 1 to 65535; 0 when none was given.
type Port uint16

// UnmarshalTOML reads a number from 1 to 65535.
func (p *Port) UnmarshalTOML(value any) error {
	i, ok := value.(int64)
	if !ok {
		return wantsWholeNumber(value)
	}
	if i < 1 || i > math.MaxUint16 {
		return faultf("must be from 1 to %d", math.MaxUint16)
	}
	*p = Port(i)
	return nil
}

// GPUCount is the number of GPUs a host must have; Auto when whatever is there will do.
type GPUCount int

// Auto is the GPUCount of gpus = "auto".
const Auto GPUCount = -1

// maxGPUs is more than any host has.
const maxGPUs = 1024

// UnmarshalTOML reads a number from 0 to 1024, or "auto".
func (c *GPUCount) UnmarshalTOML(value any) error {
	switch v := value.(type) {
	case int64:
		if v < 0 || v > maxGPUs {
			return faultf("must be from 0 to %d", maxGPUs)
		}
		*c = GPUCount(v)
		return nil
	case string:
		if v == "auto" {
			*c = Auto
			return nil
		}
		if isDigits(v) {
			return wantsWholeNumber(value)
		}
		return faultf(`wants a number or "auto", got %s`, quote(v))
	}
	return wants(`a number or "auto"`, value)
}

// String writes it as a profile does: "8" or "auto".
func (c GPUCount) String() string {
	if c == Auto {
		return "auto"
	}
	return strconv.Itoa(int(c))
}

// Shm says whose /dev/shm an engine sees.
type Shm string

// The values of Shm.
const (
	ShmPrivate Shm = "private"
	ShmHost    Shm = "host"
)

// UnmarshalTOML reads one of the values of Shm.
func (s *Shm) UnmarshalTOML(value any) error { return oneOf(s, value, ShmPrivate, ShmHost) }

// ProtectHome says what an engine sees of /home, /root and /run/user; systemd.exec(5) has the same words.
type ProtectHome string

// The values of ProtectHome.
const (
	ProtectHomeYes      ProtectHome = "yes"
	ProtectHomeReadOnly ProtectHome = "read-only"
	ProtectHomeNo       ProtectHome = "no"
)

// UnmarshalTOML reads one of the values of ProtectHome.
func (p *ProtectHome) UnmarshalTOML(value any) error {
	return oneOf(p, value, ProtectHomeYes, ProtectHomeReadOnly, ProtectHomeNo)
}

// Logprobs says whether a probe may ask for token probabilities.
type Logprobs string

// The values of Logprobs.
const (
	LogprobsAuto Logprobs = "auto"
	LogprobsYes  Logprobs = "yes"
	LogprobsNo   Logprobs = "no"
)

// UnmarshalTOML reads one of the values of Logprobs.
func (p *Logprobs) UnmarshalTOML(value any) error {
	return oneOf(p, value, LogprobsAuto, LogprobsYes, LogprobsNo)
}

// oneOf reads a string that must be one of a few words.
func oneOf[T ~string](to *T, value any, words ...T) error {
	list := ""
	var known []string
	for i, w := range words {
		known = append(known, string(w))
		switch {
		case i == 0:
		case i == len(words)-1:
			list += " or "
		default:
			list += ", "
		}
		list += strconv.Quote(string(w))
	}
	switch v := value.(type) {
	case string:
		for _, w := range words {
			if v == string(w) {
				*to = w
				return nil
			}
		}
		return faultf("must be %s", list).hinted("%s", didYouMean(v, known, ""))
	case bool:
		if word := map[bool]string{true: "yes", false: "no"}[v]; known[0] == word || known[len(known)-1] == word {
			return wants(list, value).hinted("write %q", word)
		}
	}
	return wants(list, value)
}
