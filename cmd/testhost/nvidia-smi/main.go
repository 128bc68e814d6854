// Nvidia-smi answers for the driver made of files that package fakegpu puts
// into disposable hosts. It owns the command line and the switches; what it
// says comes from the package.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vllmhost/testhost/fakegpu"
)

func main() {
	if len(os.Args) > 3 && os.Args[1] == fakegpu.HoldFlag {
		hold(os.Args[2])
		return
	}
	args, every := loop(os.Args[1:])
	for {
		obeySwitches()
		out, err := answer(args)
		if err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
		fmt.Print(out)
		if every == 0 {
			return
		}
		time.Sleep(every)
	}
}

// loop takes -lms MILLISECONDS off a command line: the answer is given again and again.
func loop(args []string) (rest []string, every time.Duration) {
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		if name != "-lms" && name != "--loop-ms" {
			rest = append(rest, args[i])
			continue
		}
		if !joined && i+1 < len(args) {
			i++
			value = args[i]
		}
		ms, _ := strconv.Atoi(value)
		every = time.Duration(ms) * time.Millisecond
	}
	return rest, every
}

// obeySwitches does what the files in /etc/fakegpu ask for.
func obeySwitches() {
	if _, err := os.Stat("/etc/fakegpu/hang"); err == nil {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		for {
			time.Sleep(time.Hour)
		}
	}
	if text, err := os.ReadFile("/etc/fakegpu/fail"); err == nil {
		fmt.Print(string(text))
		os.Exit(9)
	}
	if _, err := os.Stat("/etc/fakegpu/mismatch"); err == nil {
		fmt.Println("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.171")
		os.Exit(18)
	}
	if _, err := os.Stat("/dev/nvidiactl"); errors.Is(err, os.ErrNotExist) {
		fmt.Println("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. " +
			"Make sure that the latest NVIDIA driver is installed and running.")
		os.Exit(9)
	}
}

// answer is what a command line gets.
func answer(args []string) (string, error) {
	var gpuFields, appFields, ids string
	var list bool
	format := "csv"
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		if !joined && (name == "-i" || name == "--id") && i+1 < len(args) {
			i++
			value = args[i]
		}
		switch name {
		case "--query-gpu":
			gpuFields = value
		case "--query-compute-apps":
			appFields = value
		case "--format":
			format = value
		case "-i", "--id":
			ids = value
		case "-L", "--list-gpus":
			list = true
		default:
			return "", fakegpu.Refusal("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.")
		}
	}
	state, err := fakegpu.Read("/", time.Now())
	if err != nil {
		return "", err
	}
	if list {
		return state.List(), nil
	}
	f, err := fakegpu.ParseFormat(format)
	if err != nil {
		return "", err
	}
	switch {
	case gpuFields != "":
		return state.QueryGPU(gpuFields, f, selected(ids))
	case appFields != "":
		return state.QueryComputeApps(appFields, f, selected(ids))
	}
	return state.Summary(), nil
}

// selected reads -i: indices, UUIDs or bus addresses.
func selected(ids string) func(fakegpu.GPU) bool {
	return func(g fakegpu.GPU) bool {
		if ids == "" {
			return true
		}
		for id := range strings.SplitSeq(ids, ",") {
			if id == strconv.Itoa(g.Index) || id == g.UUID || strings.EqualFold(id, g.SMIBusID()) || strings.EqualFold(id, g.BusID) {
				return true
			}
		}
		return false
	}
}

// hold has the GPU's node open until it is killed. How much that holds is read
// from its command line.
func hold(index string) {
	// Not os.Open: the descriptor of a file that nobody refers to is closed.
	if _, err := syscall.Open("/dev/nvidia"+index, syscall.O_RDWR|syscall.O_CLOEXEC, 0); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	signal.Ignore(syscall.SIGHUP)
	for {
		time.Sleep(time.Hour)
	}
}
