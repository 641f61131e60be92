package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// private is a server started from installed binaries, in a separate folder and on a free port.
type private interface {
	start(ctx context.Context) (dsn string, ended <-chan struct{}, err error)
	running() bool
	stop() error
	home() string
	packages() []string
}

// prepare finds the user to run a server, the server's folder and a port, and ends a server that an
// interrupted run left running.
func prepare(p private, user string) (cred *syscall.Credential, dir string, port int, err error) {
	if cred, err = owner(user); err != nil {
		return nil, "", 0, err
	}
	if cred, dir, err = makeHome(p.home(), cred); err != nil {
		return nil, "", 0, err
	}
	if err = p.stop(); err != nil {
		return nil, "", 0, err
	}
	port, err = freePort()
	return cred, dir, port, err
}

// initialize makes the server's data once. The data gets the final name when complete: after an
// interrupted run the data is made again.
func initialize(dir string, fill func(data string) error) (data string, err error) {
	data = filepath.Join(dir, "data")
	if _, err := os.Stat(data); err == nil {
		return data, nil
	}
	// A program of a killed run may still write there, so the name is new, and files that cannot be
	// deleted now are deleted with .db.
	left, _ := filepath.Glob(data + ".new-*")
	for _, dir := range left {
		_ = os.RemoveAll(dir)
	}
	fresh := fmt.Sprintf("%s.new-%d", data, os.Getpid())
	if err := fill(fresh); err != nil {
		return "", errors.Join(err, os.RemoveAll(fresh))
	}
	return data, os.Rename(fresh, data)
}

// binary finds a program in PATH or in the given folders, whose names may contain
// wildcards; the newest version wins.
func binary(names []string, globs ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		for _, glob := range globs {
			if found, _ := filepath.Glob(filepath.Join(glob, name)); len(found) > 0 {
				return slices.MaxFunc(found, byVersion), nil
			}
		}
	}
	return "", fmt.Errorf("%s: %w", strings.Join(names, " or "), errNotInstalled)
}

// program finds a program in the tree, or, if tree is empty, in the system, as [binary] does.
func program(tree string, names, folders []string) (string, error) {
	if tree == "" {
		return binary(names, folders...)
	}
	for _, name := range names {
		for _, folder := range []string{"usr/sbin", "usr/bin", "usr/lib/postgresql/*/bin", "bin"} {
			if found, _ := filepath.Glob(filepath.Join(tree, folder, name)); len(found) > 0 {
				return found[0], nil
			}
		}
	}
	return "", fmt.Errorf("%s is not below %s", strings.Join(names, " or "), tree)
}

// byVersion compares paths by the first numbers that differ: 9 is before 15.
func byVersion(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	i = len(strings.TrimRight(a[:i], "0123456789"))
	number := func(s string) int {
		n, _ := strconv.Atoi(s[:len(s)-len(strings.TrimLeft(s, "0123456789"))])
		return n
	}
	return cmp.Or(cmp.Compare(number(a[i:]), number(b[i:])), strings.Compare(a, b))
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// owner is the user that runs a server: database servers refuse to run as root.
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

// makeHome makes the server's folder, writable for its owner, and returns the owner. Other users
// may have no access to root's checkout, so their folder is a temporary folder, and the folder that
// git ignores links to it.
func makeHome(dir string, cred *syscall.Credential) (*syscall.Credential, string, error) {
	if cred == nil {
		return nil, dir, os.MkdirAll(dir, 0o700)
	}
	if info, err := os.Lstat(dir); err == nil && info.IsDir() { // from a run as that user
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 {
			return &syscall.Credential{Uid: stat.Uid, Gid: stat.Gid}, dir, nil
		}
	}
	if target, err := os.Readlink(dir); err == nil {
		if _, err := os.Stat(target); err == nil {
			return cred, target, nil
		}
		if err := os.Remove(dir); err != nil {
			return nil, "", err
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, "", err
	}
	target, err := temporary("outbox-"+filepath.Base(dir)+"-", cred, os.TempDir(), "/tmp", "/var/tmp")
	if err != nil {
		return nil, "", err
	}
	if err := os.Symlink(target, dir); err != nil {
		return nil, "", errors.Join(err, os.Remove(target))
	}
	return cred, target, nil
}

// temporary makes a folder owned by cred in the first parent that cred can access.
func temporary(prefix string, cred *syscall.Credential, parents ...string) (string, error) {
	var errs []error
	for _, parent := range parents {
		dir, err := os.MkdirTemp(parent, prefix)
		if err == nil {
			err = errors.Join(os.Chown(dir, int(cred.Uid), int(cred.Gid)),
				tool(context.Background(), cred, dir, "/bin/sh", "-c", ":"))
			if err == nil {
				return dir, nil
			}
			err = errors.Join(err, os.Remove(dir))
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// removeHome deletes the folder and its target.
func removeHome(dir string) error {
	if target, err := os.Readlink(dir); err == nil {
		return errors.Join(os.RemoveAll(target), os.Remove(dir))
	}
	return os.RemoveAll(dir)
}
