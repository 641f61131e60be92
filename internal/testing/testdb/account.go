package testdb

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Account is the user that runs private servers, with a folder to which this user may write: the
// servers refuse to run as root, and other users have no access to root's temporary folders.
type Account struct {
	Dir  string
	cred *syscall.Credential // nil: this process's user
}

// NewAccount makes the folder, which is deleted with the test. The user is this process's user, or
// for root the first of names that exists, or nobody.
func NewAccount(t testing.TB, names ...string) Account {
	t.Helper()
	dir, err := os.MkdirTemp("", "outbox-server-") //nolint:usetesting // the parent of t.TempDir is root's alone
	require.NoError(t, err)
	t.Cleanup(func() {
		// Killed programs may still write for a moment.
		for end := time.Now().Add(10 * time.Second); os.RemoveAll(dir) != nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("the folder %s cannot be deleted", dir)
				return
			}
		}
	})
	if os.Geteuid() != 0 {
		return Account{Dir: dir}
	}
	for _, name := range append(names, "nobody") {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		require.NoError(t, err)
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		require.NoError(t, err)
		require.NoError(t, os.Chown(dir, int(uid), int(gid)))
		return Account{dir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	t.Fatalf("this is root, and there is no user to run a server; one of %v must exist", names)
	return Account{}
}

// Command is a program that the account runs in its folder, in a separate process group.
func (a Account) Command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...) //nolint:noctx // a server ends with its test
	cmd.Dir, cmd.Env = a.Dir, append(os.Environ(), "TMPDIR="+a.Dir, "HOME="+a.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.cred, Setpgid: true}
	return cmd
}

// Run runs a program to the end.
func (a Account) Run(t testing.TB, path string, args ...string) {
	t.Helper()
	out, err := a.Command(path, args...).CombinedOutput()
	require.NoErrorf(t, err, "%s: %s", filepath.Base(path), out)
}

// InitPostgres makes an empty database cluster in the account's folder data with initdb, and
// returns that folder. The superuser postgres needs no password.
func (a Account) InitPostgres(t testing.TB, initdb string) (data string) {
	t.Helper()
	data = filepath.Join(a.Dir, "data")
	a.Run(t, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
	return data
}
