package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	nvidiaSMI = "/usr/bin/nvidia-smi"
	// smiPatience bounds the question; the real engine asks the driver itself, and hangs with it.
	smiPatience = time.Second
)

// occupied is what the worker dies of when others hold too much of a GPU's memory. It goes by nvidia-smi, which knows who
// has the nodes open; where that does not answer, there is room.
func (s *server) occupied() (fatal, bool) {
	if !s.cuda || s.set.DevDir != "/dev" {
		return fatal{}, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), smiPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, nvidiaSMI, "--query-gpu=index,memory.free,memory.total", "--format=csv,noheader,nounits")
	cmd.WaitDelay = smiPatience
	out, err := cmd.Output()
	if err != nil {
		return fatal{}, false
	}
	for line := range strings.Lines(string(out)) {
		var n [3]int
		for i, field := range strings.Split(line, ",") {
			if i < len(n) {
				n[i], _ = strconv.Atoi(strings.TrimSpace(field))
			}
		}
		share, _ := strconv.ParseFloat(s.opt.gpuShare, 64) // checked when it was read
		for local, minor := range s.gpus {
			free, total := float64(n[1])/1024, float64(n[2])/1024
			if minor == n[0] && free < share*total {
				return fatal{from: fromWorker, text: fmt.Sprintf("ValueError: Free memory on device cuda:%d (%.2f/%.1f GiB) on startup is less than desired GPU memory "+
					"utilization (%g, %.2f GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
					local, free, total, share, share*total)}, true
			}
		}
	}
	return fatal{}, false
}
