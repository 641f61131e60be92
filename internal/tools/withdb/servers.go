package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

type privatePostgres struct{ dir string }

func (p *privatePostgres) packages() []string { return []string{"postgresql"} }
func (p *privatePostgres) home() string       { return p.dir }

func (p *privatePostgres) start() (string, error) {
	globs := []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin"}
	initdb, err1 := binary([]string{"initdb"}, globs...)
	postgres, err2 := binary([]string{"postgres"}, globs...)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	cred, dir, port, err := prepare(p, "postgres")
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err != nil {
		if err := tool(cred, dir, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"); err != nil {
			return "", err
		}
	}
	err = daemon(cred, dir, postgres, "-D", data, "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+dir, "-c", "max_connections=200")
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port), err
}

func (p *privatePostgres) stop() error { return kill(p.dir, syscall.SIGINT) } // fast shutdown

type privateMySQL struct{ dir string }

func (p *privateMySQL) packages() []string { return []string{"mariadb-server"} }
func (p *privateMySQL) home() string       { return p.dir }

func (p *privateMySQL) start() (string, error) {
	globs := []string{"/usr/sbin", "/usr/libexec", "/opt/homebrew/opt/m*/bin", "/usr/local/opt/m*/bin"}
	server, err := binary([]string{"mariadbd", "mysqld"}, globs...)
	if err != nil {
		return "", err
	}
	cred, dir, port, err := prepare(p, "mysql")
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	if _, err := os.Stat(filepath.Join(data, "mysql")); err != nil {
		if err := p.init(cred, dir, data, server, globs); err != nil {
			return "", err
		}
	}
	err = daemon(cred, dir, server, "--no-defaults", "--datadir="+data, "--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(port), "--socket="+filepath.Join(dir, "sock"), "--pid-file="+filepath.Join(dir, "server.pid"), "--skip-log-bin")
	return fmt.Sprintf("root@tcp(127.0.0.1:%d)/", port), err
}

func (p *privateMySQL) init(cred *syscall.Credential, dir, data, server string, globs []string) error {
	if install, err := binary([]string{"mariadb-install-db", "mysql_install_db"}, globs...); err == nil {
		return tool(cred, dir, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	}
	return tool(cred, dir, server, "--no-defaults", "--initialize-insecure", "--datadir="+data)
}

func (p *privateMySQL) stop() error { return kill(p.dir, syscall.SIGTERM) }

// install installs packages where that is allowed: as root on Debian and its
// kin. The packages' own services are kept from starting.
func install(packages []string) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return errors.New("there is no apt-get to install it with")
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
		cmd := exec.Command(apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}

// compose starts the server of docker-compose.yml.
func (s *server) compose() (string, error) {
	service, dsn := "postgres", "postgres://postgres@127.0.0.1:55432/postgres?sslmode=disable"
	if s.driver == "mysql" {
		service, dsn = "mariadb", "root@tcp(127.0.0.1:53306)/"
	}
	if out, err := exec.Command("docker", "compose", "up", "-d", service).CombinedOutput(); err != nil {
		return "", fmt.Errorf("docker compose: %w\n%s", err, out)
	}
	return dsn, await(s.driver, dsn)
}
