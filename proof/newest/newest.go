// Package newest imports the libraries that no other module without users imports. So each library
// has its newest version in the workspace, which Dependabot keeps, and the modules that users get keep
// the old versions.
package newest

import (
	_ "cloud.google.com/go/pubsub/v2"                                  // relay/pubsub
	_ "code.dny.dev/ssrf"                                              // relay/webhook
	_ "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream" // tests of relay/watermill
	_ "github.com/aws/aws-sdk-go-v2/aws"                               // relay/sns, relay/sqs
	_ "github.com/aws/aws-sdk-go-v2/service/sns"                       // relay/sns
	_ "github.com/aws/aws-sdk-go-v2/service/sqs"                       // relay/sqs
	_ "github.com/coder/websocket"                                     // tests of the middlewares
	_ "github.com/glebarez/sqlite"                                     // tests of adapters/gorm
	_ "github.com/go-mysql-org/go-mysql/replication"                   // relay/binlog
	_ "github.com/googleapis/gax-go/v2"                                // relay/pubsub
	_ "github.com/invopop/jsonschema"                                  // contracts
	_ "github.com/rabbitmq/amqp091-go"                                 // relay/rabbitmq
	_ "github.com/redis/go-redis/v9"                                   // relay/redis
	_ "github.com/santhosh-tekuri/jsonschema/v6"                       // tests of contracts
	_ "github.com/standard-webhooks/standard-webhooks/libraries/go"    // relay/webhook, its tests
	_ "github.com/uptrace/bun/driver/pgdriver"                         // tests
	_ "github.com/valyala/fasthttp"                                    // fibermw
	_ "go.opentelemetry.io/otel/metric"                                // adapters/otel
	_ "google.golang.org/api/option"                                   // relay/pubsub
	_ "gorm.io/plugin/dbresolver"                                      // tests of adapters/gorm
)
