package relaypubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/outboxkit/outbox-go/outbox"
)

// Config configures a [Publisher]. Project is required.
type Config struct {
	// Project is the id of the project. Required.
	Project string
	// Options are the client's own options: credentials, and the endpoint of a region. Without
	// credentials the client takes the default credentials of the environment. The options come
	// after the publisher's option, with which the client waits at most 10 s before it connects
	// again.
	Options []option.ClientOption
}

// New makes a publisher. New looks for credentials and does not connect: while Pub/Sub does not
// answer, events stay in the outbox. If the environment variable PUBSUB_EMULATOR_HOST is set, the
// client connects to an emulator.
func New(cfg Config) (*Publisher, error) {
	if cfg.Project == "" {
		return nil, &outbox.FieldError{Field: "relaypubsub.Config.Project", Problem: "is empty; name the project, such as shop-123456"}
	}
	client, err := pubsub.NewClient(context.Background(), cfg.Project, slices.Concat([]option.ClientOption{
		option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: connectTimeout})),
	}, cfg.Options)...)
	if err != nil {
		return nil, fmt.Errorf("relaypubsub: the options of the client: %w", err)
	}
	return &Publisher{client: client, project: client.Project()}, nil
}

// reconnect is gRPC's default, except that gRPC would wait up to two minutes.
var reconnect = backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 10 * time.Second}

const connectTimeout = 20 * time.Second // gRPC's default

// CheckTopic reports the problem with the topic of a route, which is the id or the name of a topic.
func (*Publisher) CheckTopic(topic string) error {
	id := topic
	if strings.Contains(topic, "/") {
		parts := strings.Split(topic, "/")
		if len(parts) != 4 || parts[0] != "projects" || parts[1] == "" || parts[2] != "topics" {
			return errors.New("is not the name of a topic, such as projects/shop/topics/orders")
		}
		id = parts[3]
	}
	const least, most = 3, 255
	letter := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	switch {
	case len(id) < least || len(id) > most:
		return fmt.Errorf("a topic's id of %d characters; Pub/Sub takes %d to %d", len(id), least, most)
	case !letter(rune(id[0])):
		return errors.New("a topic's id begins with a letter")
	case strings.HasPrefix(id, "goog"):
		return errors.New("a topic's id does not begin with goog")
	}
	for _, c := range id {
		if !letter(c) && (c < '0' || c > '9') && !strings.ContainsRune("-_.~+%", c) {
			return fmt.Errorf("a topic's id has a %q; Pub/Sub takes letters and digits of ASCII, and -_.~+%%", c)
		}
	}
	return nil
}
