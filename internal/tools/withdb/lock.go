package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lock takes a lock on a file, shared or exclusive, and waits for it. The lock
// ends with the process at the latest.
func lock(ctx context.Context, path string, how int) (*os.File, error) {
	for {
		f, err := tryLock(path, how)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tryLock is lock without waiting: the error is EWOULDBLOCK if another process has
// the lock.
func tryLock(path string, how int) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o644)
	if errors.Is(err, fs.ErrNotExist) { // the folder was deleted meanwhile
		return nil, syscall.EWOULDBLOCK
	}
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if err == nil && !isAt(f, path) {
		err = syscall.EWOULDBLOCK // a lock on a deleted file excludes no other process
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func isAt(f *os.File, path string) bool {
	held, err1 := f.Stat()
	there, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(held, there)
}
