// Byte-pair encoding: type a text, and see its tokens after so many merges.
class PairMerges extends Moving {
  controls() {
    return `<label>text <input name="text" size="34" value="${escaped(this.data.text)}"></label>`
      + slider("done", "merges", 0, 1, 0.005, 1);
  }
  tokens(done) {
    const { byte_ids: ids, merges, first } = this.data;
    this.rank ??= new Map(merges.map((pair, r) => [String(pair), r]));
    const rankOf = (word, i) => this.rank.get(`${word[i].id},${word[i + 1].id}`) ?? Infinity;
    const words = ` ${this.root.querySelector("[name=text]").value}`.normalize("NFC").match(
      /'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu);
    return words.flatMap(text => {
      const word = [...new TextEncoder().encode(text)].map(byte => ({ id: ids[byte], bytes: [byte] }));
      for (;;) {
        const ranks = word.slice(1).map((_, i) => rankOf(word, i)), r = Math.min(...ranks);
        if (r >= done) return word;
        for (let i = 0; i + 1 < word.length; i++) {
          if (rankOf(word, i) === r) {
            word.splice(i, 2, { id: first + r, bytes: [...word[i].bytes, ...word[i + 1].bytes] });
          }
        }
      }
    });
  }
  draw() {
    const { merges, first } = this.data;
    const done = Math.round((merges.length + 1) ** this.value("done")) - 1;  // few merges do the most
    const tokens = this.tokens(done), latest = Math.max(...tokens.map(token => token.id));
    let x = 5, y = 5, shapes = "";
    for (const { id, bytes } of tokens) {
      let label = new TextDecoder().decode(new Uint8Array(bytes)).replaceAll(" ", "␣");
      if (label.includes("\ufffd")) label = bytes.map(byte => byte.toString(16)).join(" ");
      const width = 8 * [...label].length + 8;
      if (x + width > this.wide - 5) { x = 5; y += 32; }
      shapes += rect(x, y, width - 2, 26, id === latest && id >= first ? "bar" : "", 'stroke="currentColor"'
        + (id === latest && id >= first ? "" : ' fill="none"')) + text(x + width / 2 - 1, y + 17, escaped(label));
      x += width;
    }
    this.root.querySelector("[name=done]").setAttribute("aria-valuetext", done);
    this.show(this.wide, y + 36, "the tokens of the text", shapes,
      `after ${done} of ${merges.length} merges: ${tokens.length} tokens`
      + (latest < first ? "" : `; the newest type is that of merge ${latest - first}`));
  }
}
