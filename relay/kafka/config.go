package relaykafka

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxkit/outbox-go/outbox"
)

// Config configures a [Publisher]. Brokers is required.
type Config struct {
	// Brokers are the addresses that the client first connects to, such as "kafka-1:9092".
	// Required.
	Brokers []string
	// Options are the client's own options: TLS, SASL, compression, the partitioner, the limit of a
	// batch. Messages above kgo.ProducerBatchMaxBytes, a million bytes by default, are refused.
	// kgo.DisableIdempotentWrite is refused, and acks of all replicas are always required.
	//
	// The options come after the publisher's options: kgo.MetadataMinAge is 250 ms and
	// kgo.UnknownTopicRetries is 2, so that a topic that does not exist holds up a call for less
	// than a second. Raise both for kgo.AllowAutoTopicCreation.
	//
	// With kgo.TransactionalID each call is a transaction, one after the other. The id must
	// differ between the processes that publish at the same time, and should be the same
	// after a restart. Consumers that read only committed messages then see no copies of
	// messages whose acknowledgement was lost.
	Options []kgo.Opt
}

// New makes a publisher and does not connect: an application starts while the brokers are away, and
// the events wait in the outbox. New reports all invalid fields together, each as an
// [outbox.FieldError].
func New(cfg Config) (*Publisher, error) {
	cfg.Brokers, cfg.Options = slices.Clone(cfg.Brokers), slices.Clone(cfg.Options)
	p := &Publisher{cfg: cfg, turn: make(chan struct{}, 1)}
	var errs []error
	bad := func(field, problem string, args ...any) {
		errs = append(errs, &outbox.FieldError{Field: "relaykafka.Config." + field, Problem: fmt.Sprintf(problem, args...)})
	}
	if len(cfg.Brokers) == 0 {
		bad("Brokers", `is empty; name the brokers to begin with, such as "kafka-1:9092"`)
	}
	client, err := p.open()
	if err != nil {
		bad("Options", "make no client: %v", err)
		return nil, errors.Join(errs...)
	}
	if client.OptValue(kgo.DisableIdempotentWrite) == true {
		bad("Options", "have kgo.DisableIdempotentWrite; leave it out, or messages of a key may change places when the client tries again")
	}
	if len(errs) > 0 {
		client.Close()
		return nil, errors.Join(errs...)
	}
	id, _ := client.OptValue(kgo.TransactionalID).(string)
	p.transactional = id != ""
	p.client = client
	return p, nil
}

// Defaults for a topic that does not exist. The client asks for such a topic this often before the
// messages fail, and all messages of the call wait meanwhile. With the client's own defaults, 5 s
// and 4 tries, a call took 25 s.
const (
	metadataMinAge      = 250 * time.Millisecond
	unknownTopicRetries = 2
)

// open makes a client, which connects when it is used.
func (p *Publisher) open() (*kgo.Client, error) {
	opts := []kgo.Opt{kgo.MetadataMinAge(metadataMinAge), kgo.UnknownTopicRetries(unknownTopicRetries)}
	if len(p.cfg.Brokers) > 0 { // else New refuses the config, after the client has checked the options
		opts = append(opts, kgo.SeedBrokers(p.cfg.Brokers...))
	}
	opts = append(opts, p.cfg.Options...)
	return kgo.NewClient(append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))...)
}
