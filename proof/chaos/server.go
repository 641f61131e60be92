package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// server is a database server of installed binaries, in a separate folder. A single run at a time
// uses the server.
type server struct {
	kind, dir, dsn string
	tree           string // of the programs of MySQL; empty: the system's
	port           int
	owner          *syscall.Credential // nil: this process's
	cmd            *exec.Cmd
	ended          chan struct{}
}

var errNotInstalled = errors.New("the server is not installed")

// folders have programs that are often not in PATH.
var folders = []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/sbin", "/usr/libexec", "/opt/homebrew/opt/*/bin", "/usr/local/opt/*/bin"}

func program(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		for _, folder := range folders {
			if found, _ := filepath.Glob(filepath.Join(folder, name)); len(found) > 0 {
				return slices.Max(found), nil
			}
		}
	}
	return "", fmt.Errorf("%s: %w", names[0], errNotInstalled)
}

// newServer makes and starts a server.
func newServer(ctx context.Context, kind, tree string) (s *server, err error) {
	s = &server{kind: kind, tree: tree}
	if s.dir, err = os.MkdirTemp("", "outbox-chaos-"+kind+"-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
			s = nil
		}
	}()
	if err := s.own(); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only for a free port
	if err != nil {
		return nil, err
	}
	s.port = listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	if err := s.initialize(ctx); err != nil {
		return nil, err
	}
	s.dsn = fmt.Sprintf("root@tcp(127.0.0.1:%d)/", s.port)
	if kind == "postgres" {
		s.dsn = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
	}
	return s, s.start(ctx)
}

// own gives the folder to the user of the server, which does not run as root.
func (s *server) own() error {
	if os.Geteuid() != 0 || testdb.TreeNeedsRoot(s.tree) {
		return nil
	}
	for _, name := range []string{s.kind, "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return errors.Join(err1, err2, os.Chown(s.dir, int(uid), int(gid)))
	}
	return errors.New("this is root, and there is no other user to run a database server")
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

// command is a program that runs as the owner.
func (s *server) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...) //nolint:noctx // close ends it
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "TMPDIR="+s.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner, Setpgid: true}
	return cmd
}

func (s *server) initialize(ctx context.Context) error {
	var cmd *exec.Cmd
	if s.kind == "postgres" {
		initdb, err := program("initdb")
		if err != nil {
			return err
		}
		cmd = s.command(initdb, "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
	} else if install, err := program("mariadb-install-db", "mysql_install_db"); err == nil && s.tree == "" {
		cmd = s.command(install, "--no-defaults", "--datadir="+s.data(), "--auth-root-authentication-method=normal", "--skip-test-db")
	} else {
		mysqld, err := s.mysqld()
		if err != nil {
			return err
		}
		cmd = s.command(mysqld, append([]string{"--no-defaults", "--initialize-insecure", "--datadir=" + s.data()}, testdb.TreeArguments(s.tree)...)...)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd.Path, err, out)
	}
	return ctx.Err()
}

// start starts the server and waits until it answers.
func (s *server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if err := s.spawn(); err != nil {
			return err
		}
		err := s.answers(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		wait(ctx, 200*time.Millisecond) // PostgreSQL's other processes have not ended yet
	}
}

// mysqld is the server's program of MySQL or MariaDB.
func (s *server) mysqld() (string, error) {
	if s.tree != "" {
		return filepath.Join(s.tree, "usr", "sbin", "mysqld"), nil
	}
	return program("mariadbd", "mysqld")
}

func (s *server) spawn() error {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200", "-c", "fsync=off"}
	find := func() (string, error) { return program("postgres") }
	if s.kind == "mysql" {
		find = s.mysqld
		args = append([]string{
			"--no-defaults", "--datadir=" + s.data(), "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(s.port), "--socket=", "--loose-mysqlx=OFF",
			"--tmpdir=" + s.dir, "--pid-file=" + filepath.Join(s.dir, "server.pid"), "--skip-log-bin", "--innodb-flush-log-at-trx-commit=2", "--loose-innodb-log-file-size=16M",
		}, testdb.TreeArguments(s.tree)...)
	}
	path, err := find()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	s.cmd = s.command(path, args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	ended, cmd := make(chan struct{}), s.cmd
	s.ended = ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	return nil
}

// answers waits until the server answers. answers fails when the server ends.
func (s *server) answers(ctx context.Context) error {
	db, err := sql.Open(map[string]string{"postgres": "pgx", "mysql": "mysql"}[s.kind], s.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("the server has ended: see %s", filepath.Join(s.dir, "log"))
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// crash kills the server and starts it again after a time, or when ctx ends.
func (s *server) crash(ctx context.Context, down time.Duration) error {
	_ = s.cmd.Process.Kill()
	<-s.ended
	wait(ctx, down)
	return s.start(context.WithoutCancel(ctx))
}

// close stops the server and deletes the server's folder.
func (s *server) close() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGINT) // for PostgreSQL: without waiting for clients
		select {
		case <-s.ended:
		case <-time.After(20 * time.Second):
			_ = s.cmd.Process.Kill()
			<-s.ended
		}
	}
	_ = os.RemoveAll(s.dir)
}
