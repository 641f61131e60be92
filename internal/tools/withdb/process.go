package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tool runs a program to the end as the owner, or until the context ends.
func tool(ctx context.Context, cred *syscall.Credential, dir, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir)
	if cred != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(path), err, out)
	}
	return nil
}

// daemon starts a program that outlives this program, and stores the process id. The channel closes
// when the program ends. The program's arguments can be read when daemon returns: right after the
// start the system may still show none, and serves would take the process for another's.
func daemon(cred *syscall.Credential, dir, path string, args ...string) (ended <-chan struct{}, err error) {
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		_ = cmd.Process.Signal(syscall.SIGTERM) // no other run would find it
		return nil, err
	}
	for hasNoArguments(cmd.Process.Pid) {
		select {
		case <-done:
			return done, nil
		case <-time.After(time.Millisecond):
		}
	}
	return done, nil
}

func hasNoArguments(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(line) == 0
}

// kill ends only the server whose id is stored in dir.
func kill(dir string, signal syscall.Signal) error {
	pid, err := noted(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if !serves(pid, dir) {
			return os.Remove(filepath.Join(dir, "pid"))
		}
		// EPERM means that the process runs as another user.
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		signal = 0 // from now on only check whether the process runs
	}
	return fmt.Errorf("process %d does not end", pid)
}

// running reports whether the server whose id is stored in dir runs.
func running(dir string) bool {
	pid, err := noted(dir)
	return err == nil && serves(pid, dir)
}

func noted(dir string) (pid int, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		return 0, err
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil && pid < 2 { // a signal to 0 or -1 goes to many
		err = fmt.Errorf("%d is not a server's process", pid)
	}
	return pid, err
}

// serves reports whether the process is the server of dir: after a reboot a stored
// id may belong to another process.
func serves(pid int, dir string) bool {
	if target, err := os.Readlink(dir); err == nil {
		dir = target
	}
	data := filepath.Join(dir, "data")
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil {
		args := strings.Split(string(line), "\x00")
		return slices.Contains(args, data) || slices.Contains(args, "--datadir="+data)
	}
	// A system without /proc, or no such process.
	line, _ := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	return strings.Contains(string(line)+" ", data+" ")
}
