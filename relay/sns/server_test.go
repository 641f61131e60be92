package relaysns_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/internal/testing/snstest"
	"github.com/outboxkit/outbox-go/internal/testing/sqstest"
	relaysns "github.com/outboxkit/outbox-go/relay/sns"
)

// The test's own program is also the server that a test kills: it is a server when these variables
// are set.
const (
	serverAddr  = "RELAYSNS_TEST_ADDR"
	serverDir   = "RELAYSNS_TEST_DIR"
	serverTopic = "RELAYSNS_TEST_TOPIC"
)

const imitation = "broker: snstest, a small imitation of SNS"

func TestMain(m *testing.M) {
	if addr := os.Getenv(serverAddr); addr != "" {
		s, err := snstest.New(os.Getenv(serverDir), os.Getenv(serverTopic))
		if err != nil {
			panic(err)
		}
		go func() { panic(http.ListenAndServe(addr, s)) }() //nolint:gosec // a server of tests
		_, _ = io.Copy(io.Discard, os.Stdin)                // until it is killed
		select {}
	}
	goleak.VerifyTestMain(m)
}

// process starts a server with a topic as a process that can be killed.
func process(t testing.TB, topic string) (addr, dir string, p *relaytest.Process) {
	t.Helper()
	t.Log(imitation + ", a process of its own")
	addr, dir = relaytest.FreeAddr(t), t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	return addr, dir, relaytest.Start(t, func() *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), serverAddr+"="+addr, serverDir+"="+dir, serverTopic+"="+topic)
		return cmd
	}, func() error {
		answer, err := http.Get("http://" + addr) //nolint:noctx // the server is on this machine
		if err == nil {
			err = answer.Body.Close()
		}
		http.DefaultClient.CloseIdleConnections()
		return err
	})
}

// server is a server in this process.
type server struct {
	*snstest.Server
	dir, url string
}

// start starts a server with the topics orders and orders.fifo. answer may answer requests in place of the
// server: it returns false to let the server answer.
func start(t testing.TB, answer func(w http.ResponseWriter, form url.Values) bool) *server {
	t.Helper()
	t.Log(imitation + ", in this process")
	dir := t.TempDir()
	s, err := snstest.New(dir, "orders", "orders.fifo")
	require.NoError(t, err)
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(text)))
		form, err := url.ParseQuery(string(text))
		if err == nil && answer != nil && answer(w, form) {
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(listening.Close)
	return &server{s, dir, listening.URL}
}

// stored are the messages of a topic.
func (s *server) stored(t testing.TB, topic string) []sqstest.Message {
	t.Helper()
	list, err := sqstest.Stored(s.dir, topic)
	require.NoError(t, err)
	return list
}

// publisher is a publisher whose client does not retry unless change says so.
func publisher(t testing.TB, url string, change func(o *sns.Options)) *relaysns.Publisher {
	t.Helper()
	o := sns.Options{
		Region: "eu-west-1", BaseEndpoint: &url, HTTPClient: sqstest.NewClient(t), Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "relay", SecretAccessKey: "secret-key"}, nil
		}),
	}
	if change != nil {
		change(&o)
	}
	p, err := relaysns.New(relaysns.Config{Client: sns.New(o)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(t.Context()) })
	return p
}
