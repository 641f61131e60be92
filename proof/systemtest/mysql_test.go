package systemtest

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

const (
	mysqlWay    = "`make mysql` fetches it"
	mysqlFolder = "../../.bin/mysql/usr/sbin"
)

// mysqld is a private MySQL server. Its data stays when it is killed.
type mysqld struct {
	*server
	account
	name   string
	port   int
	args   []string
	starts int
	admin  *sql.DB // of the test's own
}

// newMySQL makes the data of a server with the number.
func newMySQL(t testing.TB, number int, args ...string) *mysqld {
	t.Helper()
	m := &mysqld{account: account{testdb.NewAccount(t, "mysql")}, name: fmt.Sprintf("mysql-%d", number), port: freePorts(t, 1)[0]}
	tree := filepath.Dir(filepath.Dir(filepath.Dir(mysqlProgram(t)))) // of usr/sbin/mysqld
	common := append([]string{
		"--no-defaults", "--datadir=" + filepath.Join(m.Dir, "data"), "--innodb-redo-log-capacity=32M", "--innodb-buffer-pool-size=64M",
	}, testdb.TreeArguments(tree)...)
	m.Run(t, mysqlProgram(t), append(common, "--initialize-insecure")...)
	m.args = append(append(common, "--tmpdir="+m.Dir, "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", m.port), "--mysqlx=OFF",
		"--socket="+filepath.Join(m.Dir, "sock"), "--pid-file="+filepath.Join(m.Dir, "pid"), "--max-connections=200",
		fmt.Sprintf("--server-id=%d", number), "--report-host=127.0.0.1", "--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"), args...)
	m.admin = open(t, "mysql", mysqlDSN(m.address(), ""))
	return m
}

func mysqlProgram(t testing.TB) string { return program(t, "mysqld", mysqlWay, mysqlFolder) }

func (m *mysqld) address() string { return loopback(m.port) }

// start starts the server, for the first time or again.
func (m *mysqld) start(t testing.TB) {
	t.Helper()
	m.starts++
	m.server = m.launch(t, fmt.Sprintf("%s.%d", m.name, m.starts), mysqlProgram(t), m.args...)
	m.await(t, "mysql", mysqlDSN(m.address(), ""))
}

// shop creates a database of that name with the tables of a shop.
func (m *mysqld) shop(t testing.TB, name string) *sql.DB {
	t.Helper()
	execute(t, m.admin, "CREATE DATABASE "+name)
	db := open(t, "mysql", mysqlDSN(m.address(), name))
	execute(t, db, ordersDDL)
	require.NoError(t, sqlstore.MySQL().CreateSchema(t.Context(), db))
	return db
}

// mysqlNumber is the number of the server's error that err wraps, or 0.
func mysqlNumber(err error) uint16 {
	var answer *mysql.MySQLError
	if errors.As(err, &answer) {
		return answer.Number
	}
	return 0
}
