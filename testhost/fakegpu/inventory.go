package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Version is that of the driver.
const Version = "580.159.04"

// A GPU is one device of the inventory.
type GPU struct {
	Index    int
	UUID     string
	Name     string
	BusID    string // as in /proc/driver/nvidia/gpus
	TotalMiB int
}

// SMIBusID is the address as nvidia-smi writes it: eight digits of domain.
func (g GPU) SMIBusID() string { return "0000" + strings.ToUpper(g.BusID) }

// freeGap is what an idle GPU's memory.free is below memory.total, in MiB.
const freeGap = 615

// Inventory returns n equal GPUs.
func Inventory(n int) []GPU {
	var gpus []GPU
	for i := range n {
		gpus = append(gpus, GPU{
			Index:    i,
			UUID:     fmt.Sprintf("GPU-%08x-2222-3333-4444-555555555555", 0x11111111*(i+1)&0xffffffff),
			Name:     "NVIDIA H200",
			BusID:    fmt.Sprintf("0000:%02x:00.0", 0x06+i),
			TotalMiB: 143771,
		})
	}
	return gpus
}

// countFile says how many GPUs the host has.
const countFile = "etc/fakegpu/count"

// Installed returns the inventory of the host with that root.
func Installed(root string) ([]GPU, error) {
	text, err := os.ReadFile(filepath.Join(root, countFile))
	if err != nil {
		return nil, err
	}
	var n int
	if _, err := fmt.Sscan(string(text), &n); err != nil {
		return nil, fmt.Errorf("cannot read %q: %v", countFile, err)
	}
	return Inventory(n), nil
}

// Install writes n GPUs into the root of a host that is not yet running; smi
// is the program that becomes its nvidia-smi.
func Install(root string, n int, smi []byte) error {
	files := map[string]string{
		countFile: fmt.Sprintln(n),
		procDir + "/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + Version +
			"  Release Build  (root@gpu-host)  \nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14) \n",
		procDir + "/params":                    "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n",
		procDir + "/registry":                  "Binary: \"\"\n",
		setupScript:                            script(n),
		"etc/systemd/system/fakegpu.service":   unit,
		libDir + "/libnvidia-ml.so." + Version: "",
		libDir + "/libcuda.so." + Version:      "",
	}
	for _, g := range Inventory(n) {
		files[procDir+"/gpus/"+g.BusID+"/information"] = g.information()
	}
	for name, text := range files {
		if err := write(root, name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := write(root, "usr/bin/nvidia-smi", smi, 0o755); err != nil {
		return err
	}
	links := map[string]string{
		libDir + "/libnvidia-ml.so.1":                             "libnvidia-ml.so." + Version,
		libDir + "/libcuda.so.1":                                  "libcuda.so." + Version,
		"etc/systemd/system/sysinit.target.wants/fakegpu.service": "../fakegpu.service",
	}
	for name, target := range links {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, path); err != nil {
			return err
		}
	}
	return nil
}

const (
	procDir     = "usr/lib/fakegpu/driver/nvidia" // becomes /proc/driver/nvidia
	setupScript = "usr/lib/fakegpu/setup"
	libDir      = "usr/lib/x86_64-linux-gnu"
)

// information is the file of that name of one GPU, blanks and tabs included.
func (g GPU) information() string {
	return fmt.Sprintf(`Model: 		 %s
IRQ:   		 %d
GPU UUID: 	 %s
Video BIOS: 	 96.00.a5.00.1a
Bus Type: 	 PCIe
DMA Size: 	 52 bits
DMA Mask: 	 0xfffffffffffff
Bus Location: 	 %s
Device Minor: 	 %d
GPU Firmware: 	 %s
GPU Excluded:	 No
`, g.Name, 41+g.Index, g.UUID, g.BusID, g.Index, Version)
}

// unit loads the "driver" where a real one is loaded: early at boot.
const unit = `[Unit]
Description=NVIDIA driver made of files
DefaultDependencies=no
After=systemd-tmpfiles-setup-dev.service
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /usr/lib/fakegpu/setup
ExecStop=/bin/sh -c 'umount /proc/driver; rm -f /dev/nvidia*'
`

// script makes what lives in memory: nodes and /proc/driver. The nodes have
// the numbers of /dev/null, which a container may open; the path is what
// tells them apart.
func script(n int) string {
	var b strings.Builder
	b.WriteString("set -eu\nmount --rbind /usr/lib/fakegpu/driver /proc/driver\n")
	for i := range n {
		fmt.Fprintf(&b, "mknod -m 666 /dev/nvidia%d c 1 3\n", i)
	}
	b.WriteString("mknod -m 666 /dev/nvidiactl c 1 3\nmknod -m 666 /dev/nvidia-uvm c 1 3\nmknod -m 666 /dev/nvidia-uvm-tools c 1 3\n")
	return b.String()
}

func write(root, name string, data []byte, mode os.FileMode) error {
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, mode)
}
