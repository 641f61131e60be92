package relayrabbitmq_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
)

// maxMessage is the servers' limit of a message.
const maxMessage = 100_000

// server is a private RabbitMQ: a node of its own name, with ports, files and a port
// mapper of its own.
type server struct {
	*relaytest.Process
	addr string
	env  []string
	sbin string
}

func (s *server) url() string { return "amqp://guest:guest@" + s.addr + "/" }

// start starts a server that ends with the test.
func start(t testing.TB) *server {
	t.Helper()
	s := &server{addr: relaytest.FreeAddr(t), sbin: sbin(t)}
	mapper, dist := port(t, relaytest.FreeAddr(t)), port(t, relaytest.FreeAddr(t))
	dir := t.TempDir()
	conf := filepath.Join(dir, "rabbitmq.conf")
	require.NoError(t, os.WriteFile(conf, []byte("listeners.tcp.local = "+s.addr+"\nmax_message_size = 100000\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plugins"), []byte("[]."), 0o600))
	s.env = append(os.Environ(),
		"HOME="+dir, "NOTIFY_SOCKET="+filepath.Join(dir, "none"), // the script then replaces itself by the server
		"ERL_EPMD_PORT="+mapper, "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=outbox"+mapper+"@localhost", "RABBITMQ_DIST_PORT="+dist,
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONF_ENV_FILE=/dev/null", "RABBITMQ_CONFIG_FILE="+conf, "RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "plugins"),
		"RABBITMQ_MNESIA_BASE="+filepath.Join(dir, "mnesia"), "RABBITMQ_LOG_BASE="+filepath.Join(dir, "log"),
		"RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"),
	)
	relaytest.Start(t, func() *exec.Cmd { return s.command("epmd", "-port", mapper, "-address", "127.0.0.1") }, func() error {
		conn, err := net.Dial("tcp", "127.0.0.1:"+mapper)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	s.Process = relaytest.Start(t, func() *exec.Cmd { return s.command(filepath.Join(s.sbin, "rabbitmq-server")) }, func() error {
		conn, err := amqp.Dial(s.url())
		if err == nil {
			t.Logf("broker: RabbitMQ %v", conn.Properties["version"])
			err = conn.Close()
		}
		return err
	})
	return s
}

func (s *server) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = s.env
	return cmd
}

// ctl runs a command of rabbitmqctl.
func (s *server) ctl(t testing.TB, args ...string) {
	t.Helper()
	out, err := s.command(filepath.Join(s.sbin, "rabbitmqctl"), args...).CombinedOutput()
	require.NoErrorf(t, err, "rabbitmqctl %s: %s", strings.Join(args, " "), out)
}

// sbin is the folder of the newest installed server's scripts. The ones in PATH may be
// wrappers that run as one user only.
func sbin(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin")
	require.NoError(t, err)
	if len(found) > 0 {
		return found[len(found)-1]
	}
	if path, err := exec.LookPath("rabbitmq-server"); err == nil {
		return filepath.Dir(path)
	}
	const why = "RabbitMQ is missing: install the package rabbitmq-server"
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

func port(t testing.TB, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return port
}

// open opens a channel of the test's own.
func (s *server) open(t testing.TB) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(s.url())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	require.NoError(t, err)
	return ch
}

// declare makes an exchange for topics, and a durable queue that gets the ones that match.
func (s *server) declare(t testing.TB, exchange, queue, pattern string, args amqp.Table) {
	t.Helper()
	ch := s.open(t)
	require.NoError(t, ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil))
	_, err := ch.QueueDeclare(queue, true, false, false, false, args)
	require.NoError(t, err)
	require.NoError(t, ch.QueueBind(queue, pattern, exchange, false, nil))
}

// stored are the messages of a queue, which stay in it.
func (s *server) stored(t testing.TB, queue string) []amqp.Delivery {
	t.Helper()
	conn, err := amqp.Dial(s.url())
	require.NoError(t, err)
	defer sync.OnceFunc(func() { _ = conn.Close() })()
	ch, err := conn.Channel()
	require.NoError(t, err)
	state, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	require.NoError(t, err)
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	require.NoError(t, err)
	var list []amqp.Delivery
	for range state.Messages {
		d, open := <-deliveries
		require.True(t, open, "the channel ended")
		list = append(list, d)
	}
	return list
}
