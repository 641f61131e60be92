package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// profiled runs fn and writes profiles of this process to a folder: cpu.prof, and allocs.prof,
// mutex.prof and block.prof since the program's start. Without a folder it only runs fn.
func profiled(folder string, fn func() error) error {
	if folder == "" {
		return fn()
	}
	runtime.SetMutexProfileFraction(100)
	runtime.SetBlockProfileRate(10_000) // a sample per 10 µs of waiting
	cpu, err := os.Create(filepath.Join(folder, "cpu.prof"))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	err = fn()
	pprof.StopCPUProfile()
	errs := []error{err, cpu.Close()}
	for _, name := range []string{"allocs", "mutex", "block"} {
		f, err := os.Create(filepath.Join(folder, name+".prof"))
		if err == nil {
			err = errors.Join(pprof.Lookup(name).WriteTo(f, 0), f.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
