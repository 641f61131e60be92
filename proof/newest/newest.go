// Package newest imports the libraries that no other module without users imports. So each library
// has its newest version in the workspace, which Dependabot keeps, and the modules that users get keep
// the old versions.
package newest

import (
	_ "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream" // tests of relay/watermill
	_ "github.com/coder/websocket"                                     // tests of the middlewares
	_ "github.com/glebarez/sqlite"                                     // tests of adapters/gorm
	_ "github.com/rabbitmq/amqp091-go"                                 // relay/rabbitmq
	_ "github.com/redis/go-redis/v9"                                   // relay/redis
	_ "github.com/uptrace/bun/driver/pgdriver"                         // tests
	_ "github.com/valyala/fasthttp"                                    // fibermw
	_ "go.opentelemetry.io/otel/metric"                                // adapters/otel
	_ "gorm.io/plugin/dbresolver"                                      // tests of adapters/gorm
)
