// Sends what a program would ask of api.github.com or slack.com to the address in DOUBLE_URL instead.
const real = globalThis.fetch;
const places = ["https://api.github.com", "https://slack.com/api"];

globalThis.fetch = (input, options) => {
  const asked = String(input);
  const place = places.find((each) => asked.startsWith(each));
  if (place === undefined) {
    throw new Error(`not meant to be asked: ${asked}`);
  }
  return real(process.env.DOUBLE_URL + asked.slice(place.length), options);
};
