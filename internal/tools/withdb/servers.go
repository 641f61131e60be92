package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// The folders of binaries that are not in PATH.
var (
	postgresFolders = []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin"}
	mysqlFolders    = []string{"/usr/sbin", "/usr/libexec", "/opt/homebrew/opt/m*/bin", "/usr/local/opt/m*/bin"}
)

// A private server's programs come from the tree, a folder of extracted packages as
// fetch.sh of ../debian makes it, or else from the system.
type privatePostgres struct{ dir, tree string }

func (p *privatePostgres) packages() []string { return []string{"postgresql"} }
func (p *privatePostgres) home() string       { return p.dir }

func (p *privatePostgres) start(ctx context.Context) (string, <-chan struct{}, error) {
	initdb, err1 := program(p.tree, []string{"initdb"}, postgresFolders)
	postgres, err2 := program(p.tree, []string{"postgres"}, postgresFolders)
	if err := errors.Join(err1, err2); err != nil {
		return "", nil, err
	}
	cred, dir, port, err := prepare(p, "postgres")
	if err != nil {
		return "", nil, err
	}
	data, err := initialize(dir, func(data string) error {
		return tool(ctx, cred, dir, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
	})
	if err != nil {
		return "", nil, err
	}
	// No socket: the path could be too long, or have a comma in it.
	ended, err := daemon(cred, dir, postgres, "-D", data, "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200")
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port), ended, err
}

func (p *privatePostgres) running() bool { return running(p.dir) }
func (p *privatePostgres) stop() error   { return kill(p.dir, syscall.SIGINT) } // fast shutdown

type privateMySQL struct{ dir, tree string }

func (p *privateMySQL) packages() []string { return []string{"mariadb-server"} }
func (p *privateMySQL) home() string       { return p.dir }

func (p *privateMySQL) start(ctx context.Context) (string, <-chan struct{}, error) {
	server, err := program(p.tree, []string{"mariadbd", "mysqld"}, mysqlFolders)
	if err != nil {
		return "", nil, err
	}
	cred, dir, port, err := prepare(p, "mysql")
	if err != nil {
		return "", nil, err
	}
	if testdb.TreeNeedsRoot(p.tree) {
		cred = nil
	}
	data, err := initialize(dir, func(data string) error { return p.init(ctx, cred, dir, data, server) })
	if err != nil {
		return "", nil, err
	}
	args := append(p.common(data), "--bind-address=127.0.0.1", "--port="+strconv.Itoa(port), "--socket=", "--loose-mysqlx=OFF",
		"--tmpdir="+dir, "--pid-file="+filepath.Join(dir, "server.pid"), "--skip-log-bin")
	ended, err := daemon(cred, dir, server, args...)
	return fmt.Sprintf("root@tcp(127.0.0.1:%d)/", port), ended, err
}

func (p *privateMySQL) init(ctx context.Context, cred *syscall.Credential, dir, data, server string) error {
	if install, err := program(p.tree, []string{"mariadb-install-db", "mysql_install_db"}, mysqlFolders); err == nil {
		return tool(ctx, cred, dir, install, append(p.common(data), "--auth-root-authentication-method=normal", "--skip-test-db")...)
	}
	return tool(ctx, cred, dir, server, append(p.common(data), "--initialize-insecure")...)
}

// common are the arguments of a server and of the program that makes the data.
func (p *privateMySQL) common(data string) []string {
	return append([]string{"--no-defaults", "--datadir=" + data}, testdb.TreeArguments(p.tree)...)
}

func (p *privateMySQL) running() bool { return running(p.dir) }
func (p *privateMySQL) stop() error   { return kill(p.dir, syscall.SIGTERM) }

// install installs packages if allowed: as root on Debian and its derivatives. The packages'
// services are prevented from starting.
func install(ctx context.Context, packages []string) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return errors.New("apt-get, which would install it, is missing")
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("install it with: sudo apt-get install %s", strings.Join(packages, " "))
	}
	const policy = "/usr/sbin/policy-rc.d"
	if _, err := os.Stat(policy); err != nil {
		if err := os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err == nil {
			defer func() { _ = os.Remove(policy) }()
		}
	}
	for _, args := range [][]string{{"update", "-q"}, append([]string{"install", "-y", "-q", "--no-install-recommends"}, packages...)} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = time.Minute // do not kill dpkg in the middle
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}

// composeUp starts the server of docker-compose.yml.
func (s *server) composeUp(ctx context.Context) (string, error) {
	service, dsn := "postgres", "postgres://postgres@127.0.0.1:55432/postgres?sslmode=disable"
	if s.driver == "mysql" {
		service, dsn = "mariadb", "root@tcp(127.0.0.1:53306)/"
	}
	if out, err := exec.CommandContext(ctx, "docker", "compose", "up", "-d", service).CombinedOutput(); err != nil {
		return "", fmt.Errorf("docker compose: %w\n%s", err, out)
	}
	return dsn, await(ctx, s.ping, s.driver, dsn, nil)
}
