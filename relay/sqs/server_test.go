package relaysqs_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/internal/testing/sqstest"
	relaysqs "github.com/outboxkit/outbox-go/relay/sqs"
)

// The test's own program is also the server that a test kills: it is a server when these variables
// are set.
const (
	serverAddr  = "RELAYSQS_TEST_ADDR"
	serverDir   = "RELAYSQS_TEST_DIR"
	serverQueue = "RELAYSQS_TEST_QUEUE"
)

const imitation = "broker: sqstest, a small imitation of SQS"

func TestMain(m *testing.M) {
	if addr := os.Getenv(serverAddr); addr != "" {
		s, err := sqstest.New(os.Getenv(serverDir), os.Getenv(serverQueue))
		if err != nil {
			panic(err)
		}
		go func() { panic(http.ListenAndServe(addr, s)) }() //nolint:gosec // a server of tests
		_, _ = io.Copy(io.Discard, os.Stdin)                // until it is killed
		select {}
	}
	goleak.VerifyTestMain(m)
}

// process starts a server with a queue as a process that can be killed.
func process(t testing.TB, queue string) (addr, dir string, p *relaytest.Process) {
	t.Helper()
	t.Log(imitation + ", a process of its own")
	addr, dir = relaytest.FreeAddr(t), t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	return addr, dir, relaytest.Start(t, func() *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), serverAddr+"="+addr, serverDir+"="+dir, serverQueue+"="+queue)
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
	*sqstest.Server
	url string
}

// start starts a server with the queues orders and orders.fifo. wrap may answer requests in place of
// the server.
func start(t testing.TB, wrap func(next http.Handler) http.Handler) *server {
	t.Helper()
	t.Log(imitation + ", in this process")
	s, err := sqstest.New(t.TempDir(), "orders", "orders.fifo")
	require.NoError(t, err)
	handler := http.Handler(s)
	if wrap != nil {
		handler = wrap(handler)
	}
	listening := httptest.NewServer(handler)
	t.Cleanup(listening.Close)
	return &server{s, listening.URL}
}

// stored are the messages of a queue.
func (s *server) stored(t testing.TB, queue string) []sqstest.Message {
	t.Helper()
	list, err := s.Stored(queue)
	require.NoError(t, err)
	return list
}

// bodies are the bodies of the messages of a queue.
func (s *server) bodies(t testing.TB, queue string) (list []string) {
	t.Helper()
	for _, m := range s.stored(t, queue) {
		list = append(list, m.Body)
	}
	return list
}

// intercept answers the requests of an action with answer, which returns false to let the server
// answer.
func intercept(action string, answer func(w http.ResponseWriter, body string) bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(strings.NewReader(string(text)))
			if r.Header.Get("X-Amz-Target") == "AmazonSQS."+action && answer(w, string(text)) {
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// client is a client of a server. It does not retry unless change says so.
func client(t testing.TB, url string, change func(o *sqs.Options)) *sqs.Client {
	t.Helper()
	o := sqs.Options{
		Region: "eu-west-1", BaseEndpoint: &url, HTTPClient: sqstest.NewClient(t), Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "relay", SecretAccessKey: "secret-key"}, nil
		}),
	}
	if change != nil {
		change(&o)
	}
	return sqs.New(o)
}

func publisher(t testing.TB, url string, change func(o *sqs.Options)) *relaysqs.Publisher {
	t.Helper()
	p, err := relaysqs.New(relaysqs.Config{Client: client(t, url, change)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(t.Context()) })
	return p
}
