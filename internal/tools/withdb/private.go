package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outboxkit/outbox-go/internal/testdb"
)

// private is a server that is started from installed binaries, in a folder of
// its own and on a free port.
type private interface {
	start() (dsn string, err error)
	stop() error
	home() string
	packages() []string
}

// prepare finds who is to run a server, its folder and a port, and ends a server
// that an interrupted run left behind.
func prepare(p private, user string) (cred *syscall.Credential, dir string, port int, err error) {
	if cred, err = owner(user); err != nil {
		return nil, "", 0, err
	}
	if dir, err = home(p.home(), cred); err != nil {
		return nil, "", 0, err
	}
	if err = p.stop(); err != nil {
		return nil, "", 0, err
	}
	port, err = freePort()
	return cred, dir, port, err
}

// await waits until the server answers.
func await(driver, dsn string) (err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err = testdb.Ping(driver, dsn); err == nil {
			return nil
		}
	}
	return err
}

// binary finds a program on the path or in the folders given, whose names may
// hold wildcards; the last match is the newest version.
func binary(names []string, globs ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		for _, glob := range globs {
			if found, _ := filepath.Glob(filepath.Join(glob, name)); len(found) > 0 {
				return found[len(found)-1], nil
			}
		}
	}
	return "", fmt.Errorf("%s is not installed", strings.Join(names, " or "))
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// owner is who runs a server: database servers refuse to run as root.
func owner(names ...string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range append(names, "nobody") {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("this is root, and there is no other user to run a database server")
}

// home makes the server's folder, where its owner may write. A root's checkout
// may not be open to others, so theirs is below the system's temporary folder,
// and the folder that git ignores points to it.
func home(dir string, cred *syscall.Credential) (string, error) {
	if cred == nil {
		return dir, os.MkdirAll(dir, 0o700)
	}
	if target, err := os.Readlink(dir); err == nil {
		if _, err := os.Stat(target); err == nil {
			return target, nil
		}
		if err := os.Remove(dir); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	target, err := os.MkdirTemp("", "outbox-"+filepath.Base(dir)+"-")
	if err != nil {
		return "", err
	}
	if err := os.Chown(target, int(cred.Uid), int(cred.Gid)); err != nil {
		return "", err
	}
	return target, os.Symlink(target, dir)
}

// tool runs a program to its end as the owner.
func tool(cred *syscall.Credential, dir, path string, args ...string) error {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	if cred != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(path), err, out)
	}
	return nil
}

// daemon starts a program that goes on when this one ends, and notes its id.
func daemon(cred *syscall.Credential, dir, path string, args ...string) error {
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// kill ends the server whose id is noted in dir, and only that one.
func kill(dir string, signal syscall.Signal) error {
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if !serves(pid, dir) || syscall.Kill(pid, signal) != nil { // it has ended
			return os.Remove(filepath.Join(dir, "pid"))
		}
		signal = 0 // from now on only ask whether it is there
	}
	return fmt.Errorf("process %d does not end", pid)
}

// serves says whether the process is the server of dir: an id that was noted
// before a restart of the machine may be another process's by now.
func serves(pid int, dir string) bool {
	if target, err := os.Readlink(dir); err == nil {
		dir = target
	}
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil { // a system without /proc, or no such process
		args, _ = exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	}
	return strings.Contains(string(args), filepath.Join(dir, "data"))
}

// remove deletes the folder, and what it points to.
func remove(dir string) error {
	if target, err := os.Readlink(dir); err == nil {
		return errors.Join(os.RemoveAll(target), os.Remove(dir))
	}
	return os.RemoveAll(dir)
}
