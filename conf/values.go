package conf

import "time"

// Duration is a length of time, written with a unit: "90s", "15min", "2h". Never negative.
type Duration time.Duration

// Size is a number of bytes, written with a unit: "50GB" (powers of 1000) or "46GiB" (powers of 1024).
type Size int64

// Percent is a share of one hundred, written with its sign: "10%". Stored as a fraction: 0.1.
type Percent float64

// Port is a TCP port, 1 to 65535; 0 when none was given.
type Port uint16

// GPUCount is the number of GPUs a host must have; Auto when whatever is there will do.
type GPUCount int

// Auto is the GPUCount of gpus = "auto".
const Auto GPUCount = -1

// GPUs says which GPUs an instance uses. The zero value uses none.
type GPUs struct {
	All     bool     // every GPU of the host
	Indices []int    // in PCI bus order, ascending, without repeats
	UUIDs   []string // "GPU-...", as nvidia-smi -L prints them
}

// Shm says whose /dev/shm an engine sees.
type Shm string

// The values of Shm.
const (
	ShmPrivate Shm = "private"
	ShmHost    Shm = "host"
)

// ProtectHome says what an engine sees of /home, /root and /run/user; systemd.exec(5) has the same words.
type ProtectHome string

// The values of ProtectHome.
const (
	ProtectHomeYes      ProtectHome = "yes"
	ProtectHomeReadOnly ProtectHome = "read-only"
	ProtectHomeNo       ProtectHome = "no"
)

// Logprobs says whether a probe may ask for token probabilities.
type Logprobs string

// The values of Logprobs.
const (
	LogprobsAuto Logprobs = "auto"
	LogprobsYes  Logprobs = "yes"
	LogprobsNo   Logprobs = "no"
)

// Arg is one vLLM option: its long flag without dashes, and a value. Value is a string, bool, int64, float64,
// []any of these, or map[string]any (a table, passed on as JSON).
type Arg struct {
	Flag  string
	Value any
}

// Args holds vLLM options in the order of the profile.
type Args []Arg
