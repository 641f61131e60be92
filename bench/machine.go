package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// cpu are the ticks of all processors since the start of the machine.
type cpu struct{ steal, idle, total float64 }

// readCPU reads /proc/stat; zero where the file does not exist.
func readCPU() cpu {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpu{}
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var c cpu
	for i, field := range strings.Fields(line)[1:] {
		var ticks float64
		if _, err := fmt.Sscan(field, &ticks); err != nil || i > 7 { // guest times are in user's
			break
		}
		c.total += ticks
		switch i {
		case 3, 4: // idle, waiting for disks
			c.idle += ticks
		case 7:
			c.steal = ticks
		}
	}
	return c
}

// stealSince is the share of the processors that the machine's host took, in
// percent.
func (c cpu) stealSince(before cpu) float64 {
	if c.total <= before.total {
		return 0
	}
	return 100 * (c.steal - before.steal) / (c.total - before.total)
}

// busyPercent is how busy other programs keep the processors for a second in which nothing is
// measured.
func busyPercent() float64 {
	before := readCPU()
	time.Sleep(time.Second)
	after := readCPU()
	if after.total <= before.total {
		return 0
	}
	return 100 - 100*(after.idle-before.idle)/(after.total-before.total)
}

// describeMachine describes the machine and the versions with which the figures were measured.
func describeMachine() string {
	var parts []string
	if model := lineOf("/proc/cpuinfo", "model name"); model != "" {
		parts = append(parts, model)
	}
	parts = append(parts, fmt.Sprintf("%d cores", runtime.NumCPU()))
	var kib float64
	if _, err := fmt.Sscan(lineOf("/proc/meminfo", "MemTotal"), &kib); err == nil {
		parts = append(parts, fmt.Sprintf("%.0f GiB", kib/(1<<20)))
	}
	parts = append(parts, runtime.Version())
	if info, ok := debug.ReadBuildInfo(); ok {
		var peers []string
		for _, dep := range info.Deps {
			if name, known := peerModules[dep.Path]; known {
				peers = append(peers, name+" "+dep.Version)
			}
		}
		parts = append(parts, slices.Sorted(slices.Values(peers))...)
	}
	return strings.Join(parts, ", ")
}

// lineOf is the value in the file's first line of that name; empty where there is no such line.
func lineOf(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

var peerModules = map[string]string{
	"github.com/riverqueue/river":               "River",
	"github.com/ThreeDotsLabs/watermill-sql/v4": "watermill-sql",
	"github.com/jackc/pgx/v5":                   "pgx",
	"github.com/uptrace/bun":                    "bun",
	"gorm.io/gorm":                              "GORM",
}
