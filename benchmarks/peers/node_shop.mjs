// The shop on the TypeScript server package 2.x over node:http. Argument: the port.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import {
  localhostHostValidation,
  localhostOriginValidation,
  NodeStreamableHTTPServerTransport,
} from "@modelcontextprotocol/node";
import { McpServer } from "@modelcontextprotocol/server";
import { Redis } from "ioredis";
import { z } from "zod";

const api = process.env.SHOP_API;
const redis = new Redis(process.env.SHOP_REDIS);
const sessions = new Map();
const allowedHost = localhostHostValidation();
const allowedOrigin = localhostOriginValidation();

const get = async (path) => (await fetch(api + path)).json();
const post = async (path, body) => {
  const headers = { "content-type": "application/json" };
  return (await fetch(api + path, { method: "POST", headers, body: JSON.stringify(body) })).json();
};
const text = (value) => ({ content: [{ type: "text", text: JSON.stringify(value) }] });

const search = {
  description: "Search a category by price, and rank the products by popularity.",
  inputSchema: z.object({
    category: z.string().default("Electronics"),
    min_price: z.number().default(50),
    max_price: z.number().default(500),
    limit: z.number().int().default(10),
  }),
};
const cart = {
  description: "Return a user's cart, its first product and the last orders.",
  inputSchema: z.object({ user_id: z.string() }),
};
const order = {
  description: "Price a cart, count the user's orders and record this one.",
  inputSchema: z.object({ user_id: z.string(), items: z.array(z.record(z.string(), z.number().int())) }),
};

async function searchProducts({ category, min_price, max_price, limit }) {
  const query = new URLSearchParams({ category, min_price, max_price, limit });
  const [result, popular] = await Promise.all([
    get(`/products/search?${query}`),
    redis.zrevrange("shop:popular", 0, 9),
  ]);
  const popularIds = popular.map(Number);
  const ranks = new Map(popularIds.map((id, index) => [id, index + 1]));
  const products = result.products.map(({ id, sku, name, price, rating }) => {
    return { id, sku, name, price, rating, popularity_rank: ranks.get(id) ?? 0 };
  });
  return text({ category, total_found: result.total_found, products, popular_ids: popularIds });
}

async function getUserCart({ user_id }) {
  const stored = await redis.hgetall(`shop:cart:${user_id}`);
  const items = JSON.parse(stored.items);
  const [product, orders] = await Promise.all([
    get(`/products/${items[0].product_id}`),
    redis.lrange(`shop:orders:${user_id}`, 0, 4),
  ]);
  const recent = orders.map((entry) => JSON.parse(entry));
  return text({ user_id, items, total: Number(stored.total), first_product: product.name, recent_orders: recent });
}

async function checkout({ user_id, items }) {
  const entry = JSON.stringify({ user_id, items, at: Math.floor(Date.now() / 1000) });
  const pipeline = redis.pipeline();
  pipeline.incr(`shop:count:${user_id}`);
  pipeline.rpush(`shop:orders:${user_id}`, entry);
  pipeline.zincrby("shop:popular", 1, String(items[0].product_id));
  const [priced, [[, count]]] = await Promise.all([post("/cart/calculate", { user_id, items }), pipeline.exec()]);
  const { order_id, total } = priced;
  return text({ order_id, total, items_count: items.length, orders_count: count, status: "confirmed" });
}

function makeServer() {
  const server = new McpServer({ name: "shop", version: "1" });
  server.registerTool("search_products", search, searchProducts);
  server.registerTool("get_user_cart", cart, getUserCart);
  server.registerTool("checkout", order, checkout);
  return server;
}

async function openSession() {
  const transport = new NodeStreamableHTTPServerTransport({
    enableJsonResponse: true,
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => void sessions.set(id, transport),
    onsessionclosed: (id) => void sessions.delete(id),
  });
  await makeServer().connect(transport);
  return transport;
}

createServer(async (request, response) => {
  if (!allowedHost(request, response) || !allowedOrigin(request, response)) return;
  const transport = sessions.get(request.headers["mcp-session-id"]) ?? (await openSession());
  await transport.handleRequest(request, response);
}).listen(Number(process.argv[2]), "127.0.0.1");
