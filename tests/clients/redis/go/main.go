// Numbers by go-redis, with its default options: from several goroutines, and by its pipeline.
//
//	go-redis PORT KEY COUNT
//
// Prints each number of the counter in a line of its own; those of one connection in the order in which they came.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/redis/go-redis/v9"
)

const pipelined = 100

func main() {
	log.SetFlags(0)
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	ctx, key := context.Background(), os.Args[2]
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	defer client.Close()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	numbers := 0
	for ; numbers < count/4; numbers++ {
		number, err := client.Incr(ctx, key).Result()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintln(out, number)
	}
	for numbers < count {
		batch := min(pipelined, count-numbers)
		replies, err := client.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
			for range batch {
				pipeline.Incr(ctx, key)
			}
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
		for _, reply := range replies {
			fmt.Fprintln(out, reply.(*redis.IntCmd).Val())
		}
		numbers += batch
	}
	texts, err := client.Do(ctx, "XUID.BATCH", 2, "@ordered").StringSlice()
	if err != nil || len(texts) != 2 || texts[0] >= texts[1] {
		log.Fatal(texts, err)
	}
}
